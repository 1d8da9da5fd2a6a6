"""Which files are read, in what order, under what name."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot.data.config import FilesSource, PythonSource
from ingot.data.sources import RawFile, Role, find_files, role_of, select
from ingot.workspace.errors import DataError


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("a.py", "python"), ("a.pyi", "python"), ("A.PY", "python"), ("a.pyc", None), ("README", "text"),
        ("README.md", "text"), ("LICENSE", "text"), ("LICENSE-APACHE", "text"), ("LICENSE.APACHE", "text"),
        ("COPYING.LESSER", "text"), ("NOTICE", "text"), ("LICENSE.py", "python"), ("license.png", None),
        ("a.rst", "text"), ("a.txt", "text"), ("METADATA", "metadata"), ("PKG-INFO", "metadata"), ("RECORD", None),
        ("a.jsonl", "rows"), ("a.jsonl.gz", "rows"), ("a.parquet", "rows"), ("a.so", None), ("a.json", None),
    ],
)  # fmt: skip
def test_roles(name: str, role: str | None) -> None:
    assert role_of(name) == role


def some_files(count: int = 60) -> list[RawFile]:
    roles: list[Role] = ["text", "python", "metadata"]
    return [RawFile(f"/x/{n}", f"python:{n}", 100 + n, roles[n % 3], "python") for n in range(count)]


@given(st.integers(0, 10_000), st.integers(0, 10_000), st.randoms())
def test_selection_is_a_prefix_that_no_order_changes(budget: int, more: int, shuffler: random.Random) -> None:
    files = some_files()
    taken = select(files, budget)
    shuffled = list(files)
    shuffler.shuffle(shuffled)
    assert select(shuffled, budget) == taken
    assert select(files, budget + more)[: len(taken)] == taken
    if taken:
        assert sum(file.size for file in taken[:-1]) < budget  # only the last one may go over


def test_prose_files_come_first() -> None:
    files = some_files()
    taken = select(files, sum(file.size for file in files if file.role != "python"))
    assert {file.role for file in taken} == {"text", "metadata"}
    assert len(taken) == 40


def test_the_installed_distribution() -> None:
    files = find_files(PythonSource(code_share=0.25))
    ids = {file.id: file for file in files}
    assert len(ids) == len(files)
    assert ids["python:stdlib/json/decoder.py"].docstrings
    assert any(name.startswith("python:site-packages/numpy/") for name in ids)
    assert not any("/ingot/" in name or "__pycache__" in name for name in ids)
    python = [file for file in files if file.role == "python"]
    assert abs(sum(file.code for file in python) / len(python) - 0.25) < 4 * (0.25 * 0.75 / len(python)) ** 0.5
    assert not any(file.code for file in find_files(PythonSource(code_share=0)))
    assert all(file.code for file in find_files(PythonSource(code_share=1)) if file.role == "python")


def test_patterns(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    for name in ("a.txt", "b.jsonl", "deep/c.md", "deep/d.py", "e.png"):
        (tmp_path / name).write_text("x")
    pattern = FilesSource(files=f"{tmp_path}/**/*", name="mine")
    assert sorted(file.id for file in find_files(pattern)) == [
        "mine:a.txt",
        "mine:b.jsonl",
        "mine:deep/c.md",
        "mine:deep/d.py",
    ]
    folder = FilesSource(files=str(tmp_path))
    assert sorted(file.id for file in find_files(folder)) == [
        "files:a.txt",
        "files:b.jsonl",
        "files:deep/c.md",
        "files:deep/d.py",
    ]
    single = FilesSource(files=[f"{tmp_path}/a.txt", f"{tmp_path}/a.*"])
    assert [file.id for file in find_files(single)] == ["files:a.txt"]
    code = FilesSource(files=f"{tmp_path}/deep/*.py")
    assert [(file.code, file.docstrings) for file in find_files(code)] == [(True, False)]


def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/caf\xe9.txt"
    try:
        with open(path, "w") as file:  # noqa: PTH123 (a Path cannot hold these bytes)
            file.write("x")
    except OSError:
        pytest.skip("this file system takes only UTF-8 names")
    (found,) = find_files(FilesSource(files=str(tmp_path)))
    assert found.id == r"files:caf\udce9.txt"
    assert found.size == 1


def test_pattern_errors(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_text("x")
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.txt").write_text("x")
    with pytest.raises(DataError, match=r"sources: files: nothing matches .*none\.txt(.|\n)*fix: check the path"):
        find_files(FilesSource(files=f"{tmp_path}/none.txt"))
    with pytest.raises(DataError, match=r"nothing matches .*\*\.txt"):
        find_files(FilesSource(files=f"{tmp_path}/missing/*.txt"))
    with pytest.raises(DataError, match=r"no file that can be read(.|\n)*fix: give files that end in \.jsonl"):
        find_files(FilesSource(files=f"{tmp_path}/*.png"))
    with pytest.raises(DataError, match="two patterns find different files with the same relative path"):
        find_files(FilesSource(files=[f"{tmp_path}/one/*", f"{tmp_path}/two/*"]))
