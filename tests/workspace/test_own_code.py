"""Functions and classes of a running program, written into files: they do there what they do here, or are refused."""

from __future__ import annotations

import linecache
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ingot.workspace.errors import RecipeError
from ingot.workspace.outside import load_outside, outside_sha256
from ingot.workspace.own_code import name_code

CELLS = iter(range(10**6))


def cell(source: str, namespace: dict[str, Any] | None = None, module: str = "__main__") -> dict[str, Any]:
    """What a notebook's cell defines: compiled from a name that is no file, as IPython does it, in the notebook's namespace."""
    name = f"<cell {next(CELLS)}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    found = {"__name__": module, **(namespace or {})}
    exec(compile(source, name, "exec", dont_inherit=True), found)
    return found


def loaded(thing: Any, folder: Path) -> Any:
    """The same thing, from its file."""
    return load_outside(name_code(thing, folder))


COUNTING = """
import math
import re as regular
from collections import Counter as Count
from math import sqrt
from os import path

NUMBER = regular.compile(r"\\d+", regular.ASCII)
SCALES = {"a": [1, 2.5], "b": (None, True, "é\\n")}
TIMES = 3
UNUSED = object()


def twice(value):
    return value * 2


def times(value, n=TIMES):
    return value * n if n < 5 else twice(value)


def score(text: str) -> float:
    numbers = [int(each) for each in NUMBER.findall(text)]

    def inner(value):
        return twice(value) + SCALES["a"][1]

    UNUSED = 0
    counted = Count(text)
    return sqrt(sum(map(inner, numbers))) + math.pi + times(counted["a"]) + path.sep.count("/") + UNUSED
"""


def test_what_a_function_names_comes_with_it(tmp_path: Path) -> None:
    """Its file alone, in a process that has never seen the program, gives what the function gives here."""
    score = cell(COUNTING)["score"]
    spec = name_code(score, tmp_path)
    text = "a 12 and 30, aa é٣"
    program = f"from ingot.workspace.outside import load_outside; print(repr(load_outside({spec!r})({text!r})))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert float(done.stdout) == score(text)


def test_the_hash_is_of_what_the_function_does(tmp_path: Path) -> None:
    """A number that it names counts, what stands elsewhere in the program does not, nor where the program stands."""

    def spec(source: str, folder: str = "a") -> str:
        return name_code(cell(source)["score"], tmp_path / folder)

    first = spec(COUNTING)
    assert spec(COUNTING + "\nOTHER = 5\n") == first == spec("\n\n# a note\n" + COUNTING)
    assert outside_sha256(spec(COUNTING, "b")) == outside_sha256(first)
    for old, new in (("TIMES = 3", "TIMES = 4"), ("value * 2", "value * 3"), ("2.5", "2.25"), (r"\d+", r"\d")):
        assert old in COUNTING and spec(COUNTING.replace(old, new)) != first


def test_a_function_inside_a_function_keeps_what_it_was_made_with(tmp_path: Path) -> None:
    def make(least: int) -> Callable[[str], bool]:
        unit = "x"

        def long_enough(text: str) -> bool:
            return text.count(unit) >= least

        return long_enough

    two, three = (loaded(make(least), tmp_path) for least in (2, 3))
    assert [each("xx") for each in (two, three)] == [True, False]


def test_a_class_comes_with_its_bases_and_decorators(tmp_path: Path) -> None:
    source = (
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        "class Base:\n    def name(self):\n        return type(self).__name__\n"
        "@dataclass(frozen=True)\nclass Point(Base):\n    x: Missing = 1\n\n    def far(self):\n        return self.x > LIMIT\n"
        "LIMIT = 3\n"
        "Alias = Base\n"
        "def named(point: Point):\n    return isinstance(point, Alias) and Point(4).far()\n"
    )
    space = cell(source)
    point = loaded(space["Point"], tmp_path)
    assert (point(x=5).far(), point().far(), point().name()) == (True, False, "Point")
    assert loaded(space["named"], tmp_path)(space["Point"](1)) is False  # classes of the program, not of the file
    with pytest.raises(AttributeError):
        point().x = 2  # frozen: the decorator is there


def test_a_class_of_properties_alone_has_a_source(tmp_path: Path) -> None:
    source = (
        "from functools import cached_property\nUNIT = 3\n"
        "class Sizes:\n    @cached_property\n    def size(self):\n        return UNIT\n"
    )
    assert loaded(cell(source)["Sizes"], tmp_path)().size == 3


def test_a_function_of_a_module_is_named_by_it(tmp_path: Path) -> None:
    assert name_code(cell, tmp_path) == f"{__name__}:cell"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("source", "said", "fix"),
    [
        ("f = lambda text: 1.0", "a lambda has no source of its own", "write it by `def`"),
        (
            "m = object()\ndef f(text):\n    return m",
            "it uses m, a object, which has no source",
            "make m inside it",
        ),
        ("x = float('nan')\ndef f(text):\n    return x", "it uses x, a float, which has no source", "make x inside it"),
        (
            "class C:\n    x = 1\ndef f(text):\n    return C.x",
            "the source of C is not known",
            "put it into a file of its own",
        ),
        (
            "def g():\n    return 1\nh = g\ndef g():\n    return 2\ndef f(text):\n    return g() + h()",
            "two things are called g",
            "give one of them another name",
        ),
        (
            "import helpers_of_mine as m\ndef f(text):\n    return m.x",
            "it uses m, a module of files",
            "from helpers_of_mine",
        ),
    ],
)
def test_what_cannot_be_written_is_refused(
    source: str, said: str, fix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "helpers_of_mine.py").write_text("x = 1\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(RecipeError) as caught:
        name_code(cell(source)["f"], tmp_path)
    assert said in str(caught.value) and fix in str(caught.value)
    sys.modules.pop("helpers_of_mine", None)


def test_only_functions_and_classes_have_code(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="is neither a function nor a class"):
        name_code(re.compile("a").sub, tmp_path)


def test_functions_of_a_file_beside_the_program_come_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not as an import: an edit of that file must be other work."""
    (tmp_path / "helpers_of_mine_too.py").write_text("UNIT = 7\ndef unit():\n    return UNIT\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    score = cell("from helpers_of_mine_too import unit as one\ndef score(text):\n    return one()")["score"]
    spec = name_code(score, tmp_path / "code")
    assert load_outside(spec)("") == 7
    assert "import" not in Path(spec.rpartition(":")[0]).read_text(encoding="utf-8")
    sys.modules.pop("helpers_of_mine_too", None)
