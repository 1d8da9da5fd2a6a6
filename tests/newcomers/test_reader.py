"""A file format of my own, as docs/guides/small-parts.md shows it, in a curate stage."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pyarrow.dataset
import pytest

from ingot.recipe.flow import run_recipe
from ingot.recipe.load import load_recipe
from ingot.recipe.work import list_work
from ingot.workspace.errors import DataError
from ingot.workspace.files import read_jsonl
from tests.making.recipes import assert_refused

PAGE = Path(__file__).parents[2] / "docs/guides/small-parts.md"
RECIPE = """
name: mine
stages:
  curate:
    sources: [{files: "FOLDER/*.stanzas*", format: stanzas.py:read, name: poems, keep: {year: integer}}]
    steps: []
    workers: 1
"""
GOOD = "1920\nNothing gold can stay\n\n1633\nNo man is an island\nentire of itself"


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    """A good file, a compressed one whose second stanza has no year, and the reader of the page."""
    shown = re.search(r"```python\n# stanzas\.py\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert shown is not None
    (tmp_path / "stanzas.py").write_text(shown[1], encoding="utf-8")
    (tmp_path / "a.stanzas").write_text(GOOD, encoding="utf-8")
    (tmp_path / "b.stanzas.gz").write_bytes(gzip.compress(b"1798\nIn Xanadu\n\nno year\nlost\n\n1800\nlost too"))
    path = tmp_path / "recipe.yaml"
    path.write_text(RECIPE.replace("FOLDER", str(tmp_path)), encoding="utf-8")
    return path


def test_its_rows_are_documents_and_damage_costs_only_the_rest_of_its_file(recipe: Path) -> None:
    runs = recipe.parent / "runs"
    folder = run_recipe(load_recipe(recipe), runs).stages[0].folder
    rows = pyarrow.dataset.dataset(sorted((folder / "documents").glob("part-*.parquet"))).to_table().to_pylist()
    assert sorted((row["id"], row["year"], row["text"], row["source"]) for row in rows) == [
        ("poems:a.stanzas:0", 1920, "Nothing gold can stay", "poems"),
        ("poems:a.stanzas:1", 1633, "No man is an island\nentire of itself", "poems"),
        ("poems:b.stanzas.gz:0", 1798, "In Xanadu", "poems"),
    ]
    (problem,) = [row for row in read_jsonl(folder / "documents" / "problems.jsonl") if row["rule"] == "damaged"]
    assert problem["place"] == "poems:b.stanzas.gz:1" and f"{recipe.parent}/stanzas.py:4" in problem["detail"]
    with (recipe.parent / "stanzas.py").open("a", encoding="utf-8") as file:
        file.write("# changed\n")
    assert [work.status for work in list_work(load_recipe(recipe), runs)] == ["to do"]


def test_a_mistake_in_it_ends_the_stage_with_its_line(recipe: Path) -> None:
    file = recipe.parent / "stanzas.py"
    file.write_text(file.read_text(encoding="utf-8").replace("int(year)", "integer(year)"), encoding="utf-8")
    with pytest.raises(
        DataError, match=r"NameError: name 'integer' is not defined \(.*stanzas.py:4\), at poems:a.stanzas"
    ):
        run_recipe(load_recipe(recipe), recipe.parent / "runs")


@pytest.mark.parametrize(
    ("new", "said"),
    [
        ("stanzas.py:raed", "has no raed\n  fix: did you mean read?"),
        ("jsnl", "sources.0.format: there is no file format jsnl\n  fix: did you mean jsonl?"),
        ("stanzas.py:read, cut_at: 2000", "cut_at: only text files are cut"),
        ("os:getcwd", "cannot be called with (file, path)"),
    ],
)
def test_errors_say_where_and_what_to_do(recipe: Path, new: str, said: str) -> None:
    assert_refused(recipe, "stanzas.py:read", new, said)
