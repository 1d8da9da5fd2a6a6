"""The family that docs/guides/add-a-family.md adds: its code as the page has it, against transformers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from transformers import MistralConfig

from ingot.checkpoints.families import table
from ingot.checkpoints.families.family import Family
from tests.checkpoints.families.harness import TINY, check

PAGE = Path(__file__).parents[3] / "docs" / "guides" / "add-a-family.md"


@pytest.mark.parametrize("changes", [{"sliding_window": None}, {"sliding_window": 5, "tie_word_embeddings": True}])
def test_mistral(changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    block = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    module: dict[str, Any] = {"__name__": "mistral"}
    exec(block[1], module)
    mistral: Family = module["MISTRAL"]
    monkeypatch.setattr(table, "FAMILIES", (*table.FAMILIES, mistral))
    check(MistralConfig(**(TINY | changes)))
