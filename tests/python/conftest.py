"""A tiny chat model on disk, and a folder of its own for every test to run in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.once import once
from tests.post.making import checkpoint_of, tiny_model, tiny_tokenizer

TINY: dict[str, Any] = {"device": "cpu", "precision": "float32", "sequence_length": 128, "steps": 4}
TALK = [
    {
        "messages": [{"role": "user", "content": f"{n} + 1?"}, {"role": "assistant", "content": str(n + 1)}],
        "thinking": False,
    }
    for n in range(8)
]
PAIRS = [{"prompt": f"{n} + 1?", "chosen": str(n + 1), "rejected": "no"} for n in range(8)]


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two layers, a vocabulary of 300."""
    return once(
        tmp_path_factory, "python-face", lambda place: checkpoint_of(tiny_model(tiny_tokenizer()), place / "base")
    )


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where runs/ is."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
