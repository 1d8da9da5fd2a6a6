"""Kernels are compiled again when they, or what they import, have changed, and only then."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import numba
import pytest

import ingot
from ingot.data import kernel_cache
from ingot.data.text import words

HELPER = (
    "from ingot.data.native import kernel\n\nFACTOR = {factor}\n\n\n@kernel\ndef times(x):\n    return x * FACTOR\n"
)
CALLER = """from ingot.data.native import kernel
from ingot.sample import (
    helper,
)

times = helper.times


@kernel
def caller(x):
    return times(x) * 2
"""
OTHER = "from ingot.data.native import kernel\n\n\n@kernel\ndef other(x):\n    return -x\n"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A room of the package with three files of kernels, and an empty cache."""
    room = tmp_path / "package" / "sample"
    room.mkdir(parents=True)
    for name, text in {
        "helper": HELPER.format(factor=3),
        "caller": CALLER,
        "other": OTHER,
        "__init__": '"""-"""',
    }.items():
        (room / f"{name}.py").write_text(text, encoding="utf-8")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # Python does not see edits within a second
    monkeypatch.setattr(ingot, "__path__", [*ingot.__path__, str(room.parent)])
    monkeypatch.setattr(kernel_cache, "PACKAGE", (*kernel_cache.PACKAGE, room.parent))
    monkeypatch.setattr(kernel_cache, "HOME", tmp_path / "kernels")
    yield room
    forget()


def forget() -> None:
    """As a new process."""
    for name in [name for name in sys.modules if name.startswith("ingot.sample")]:
        del sys.modules[name]
    importlib.invalidate_caches()
    kernel_cache.read.cache_clear()
    kernel_cache.folder.cache_clear()


def run(room: Path) -> tuple[int, int, list[str]]:
    """Results of both kernels in a fresh process, and which were compiled: those that were cold before."""
    forget()
    kernels = [getattr(importlib.import_module(f"ingot.sample.{name}"), name) for name in ("caller", "other")]
    cold = [each.__name__ for each in kernels if kernel_cache.is_cold(room / f"{each.__name__}.py")]
    one, two = (each(5) for each in kernels)
    assert [each.__name__ for each in kernels if each.stats.cache_misses] == cold
    return one, two, cold


def test_an_edit_recompiles_what_it_changes(package: Path) -> None:
    assert run(package) == (30, -5, ["caller", "other"])
    assert run(package) == (30, -5, []), "all was stored"
    (package / "helper.py").write_text(HELPER.format(factor=7), encoding="utf-8")
    assert run(package) == (70, -5, ["caller"]), "numba alone would have kept the old factor"
    (package / "other.py").write_text(OTHER.replace("-x", "-x - 1"), encoding="utf-8")
    assert run(package) == (70, -6, ["other"])
    (package / "helper.py").write_text(HELPER.format(factor=3), encoding="utf-8")
    assert run(package) == (30, -6, []), "what is old is found again"


def test_another_checkout_finds_them_compiled(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same files in another folder, written later."""
    assert run(package) == (30, -5, ["caller", "other"])
    there = tmp_path / "another" / "sample"
    there.parent.mkdir()
    for file in package.rglob("*.py"):
        there.mkdir(exist_ok=True)
        (there / file.name).write_bytes(file.read_bytes())
    monkeypatch.setattr(kernel_cache, "PACKAGE", (*kernel_cache.PACKAGE[:-1], there.parent))
    monkeypatch.setattr(ingot, "__path__", [*list(ingot.__path__)[:-1], str(there.parent)])
    assert run(there) == (30, -5, [])
    (there / "helper.py").write_text(HELPER.format(factor=7), encoding="utf-8")
    assert run(there) == (70, -5, ["caller"])


def test_all_ways_to_import(package: Path) -> None:
    (package / "many.py").write_text(
        "import ingot.sample.other\nfrom ingot.sample import caller, nothing\nfrom ingot.workspace.errors import IngotError\n"
        "import os\n\n\ndef late():\n    from ingot.data.text import words\n",
        encoding="utf-8",
    )
    reached = kernel_cache.reachable(package / "many.py")
    assert {path.name for path in reached} == {
        *("many.py", "other.py", "caller.py", "helper.py"),  # the last through the one before
        *("native.py", "kernel_cache.py", "errors.py"),
    }


def test_the_packages_own_kernels_lie_there() -> None:
    """In the folder of their file, which knows the files of their helpers."""
    file = Path(str(words.__file__))
    names = {path.name for path in kernel_cache.reachable(file)}
    assert {"words.py", "characters.py", "native.py"} <= names and "lines.py" not in names
    assert file in kernel_cache.with_kernels
    assert numba.config.CACHE_DIR == "" or Path(numba.config.CACHE_DIR) == kernel_cache.HOME, "the setting is put back"


def test_a_file_without_kernels_is_never_cold(package: Path) -> None:
    (package / "plain.py").write_text("FACTOR = 3\n", encoding="utf-8")
    assert not kernel_cache.is_cold(package / "plain.py")
