"""The generated tree of files: one plain line for every module."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

TOOL = Path(__file__).parent.parent / "tools" / "tree.py"


@pytest.fixture(scope="module")
def tree() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tree", TOOL)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_first_sentence_on_one_line(tree: ModuleType, tmp_path: Path) -> None:
    module = tmp_path / "one.py"
    for docstring, expected in (
        ("Reads a *file*\nof rows. Then more.\n\nFormula.", "Reads a \\*file\\* of rows"),
        ("Takes `a_b` and <c>:\n\n    x = 1", "Takes `a_b` and \\<c\\>"),
        ("Kimi K2. DeepSeek-V3's parts (arXiv 2507.20534).", "Kimi K2"),
        ("See config.yaml for e.g. names.", "See config.yaml for e.g. names"),
    ):
        module.write_text(f'"""{docstring}"""\n', encoding="utf-8")
        assert tree.sentence(module) == expected


def test_a_module_without_a_docstring_is_an_error(tree: ModuleType) -> None:
    empty = TOOL.parent / "nothing.py"
    try:
        empty.write_text("x = 1\n", encoding="utf-8")
        with pytest.raises(SystemExit, match=r"tools/nothing\.py: a module begins with a docstring"):
            tree.sentence(empty)
    finally:
        empty.unlink()


def test_the_page_is_what_the_docstrings_say(tree: ModuleType) -> None:
    assert tree.PAGE.read_text(encoding="utf-8") == tree.page(), "run `make tree`"
