"""The generated pages of published systems are up to date."""

from __future__ import annotations

import importlib.util
from pathlib import Path

TOOL = Path(__file__).parent.parent / "tools" / "systems.py"


def test_the_pages_are_what_the_presets_say() -> None:
    spec = importlib.util.spec_from_file_location("systems", TOOL)
    assert spec is not None and spec.loader is not None
    systems = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(systems)
    found = {path: path.read_text(encoding="utf-8") for path in systems.FOLDER.glob("*.md")}
    assert found == systems.pages(), "run `make systems`"
