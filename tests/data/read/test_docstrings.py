"""Prose out of Python files and package metadata."""

from __future__ import annotations

import ast
import inspect
import textwrap
from pathlib import Path

import pytest

from ingot.data.read.python import PAGE_CHARACTERS, NotParsable, docstring_pages, docstrings, long_description

SOURCE = '''
"""Module."""
raise SystemExit("a file that is read must not run")

class Outer:
    """Outer class.

    Line.
        Indented line.
    """
    def method(self):
        "Method, single quotes."
        def inner():
            """Inner."""
        return "not a docstring"

    class Nested:
        """Nested."""

async def coroutine():
    """Coroutine."""

try:
    import fast
except ImportError:
    fast = None
else:
    def guarded():
        """Guarded."""

if fast:
    def first():
        """First."""
else:
    def second():
        """Second."""

def computed():
    f"""No docstring: {1}"""

def empty():
    """   """
'''


def test_all_docstrings_in_order() -> None:
    assert docstrings(SOURCE) == [
        "Module.", "Outer class.\n\nLine.\n    Indented line.", "Method, single quotes.", "Inner.", "Nested.",
        "Coroutine.", "Guarded.", "First.", "Second.",
    ]  # fmt: skip


def test_equal_to_the_standard_library_on_itself() -> None:
    """The same texts as ast.walk and ast.get_docstring find."""
    for module in (textwrap, inspect):
        source = Path(inspect.getfile(module)).read_text(encoding="utf-8")
        kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        expected = [ast.get_docstring(node) for node in ast.walk(ast.parse(source)) if isinstance(node, kinds)]
        assert sorted(docstrings(source)) == sorted(text for text in expected if text)


def test_long_files_become_pages() -> None:
    source = "".join(f'def f{n}():\n    """{"word " * 200 + "end"}"""\n' for n in range(8))
    pages = docstring_pages(source)
    assert len(pages) == 2
    assert all(len(page) >= PAGE_CHARACTERS for page in pages)
    assert "\n\n".join(pages).split().count("word") == 1600
    assert docstring_pages("x = 1") == []
    assert docstring_pages('x = """no docstring"""') == []
    assert docstring_pages("'Single quotes only: not looked at.'") == []


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("print 'old python'", "in line 2"),
        ("def f(:\n", "in line 2"),
        ("x = 1\0", "null bytes"),
        ("(" * 1000, "nested"),
    ],
)
def test_broken_python_is_named(source: str, problem: str) -> None:
    with pytest.raises(NotParsable, match=problem):
        docstrings(f'"""Text."""\n{source}')


def test_metadata_descriptions() -> None:
    new = "Metadata-Version: 2.1\nName: x\nSummary: Short.\n\n# Title\n\nLong text.\n"
    assert long_description(new) == "Short.\n\n# Title\n\nLong text.\n"
    old = "Name: x\nSummary: Short.\nDescription: Title\n        \n        Long text.\nPlatform: any\n"
    assert long_description(old).split() == ["Short.", "Title", "Long", "text."]
    assert long_description("Metadata-Version: 2.1\nName: x\nSummary: Short.\n") == ""
    assert long_description("Name: x\nDescription: UNKNOWN\n") == ""
