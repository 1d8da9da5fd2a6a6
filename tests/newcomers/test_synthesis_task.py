"""A synthesis task of my own, as docs/guides/small-parts.md shows it, in a synthesize stage that asks a server."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from ingot.recipe.flow import run_recipe
from ingot.recipe.load import load_recipe
from ingot.recipe.work import list_work
from ingot.workspace.files import read_json, read_jsonl
from tests.data.synthesize.server import Reply, completion, serving
from tests.making.recipes import assert_refused

PAGE = Path(__file__).parents[2] / "docs/guides/small-parts.md"
RECIPE = """
name: mine
inputs: {documents: FOLDER/documents}
stages:
  synthesize:
    tasks: [{task: titles.py:Titles, shortest: 3, longest_title: 4}]
    endpoint: {url: "http://127.0.0.1:1/v1", model: m}
    keep_documents: false
"""
TEXTS = ["Ships go far away in storms.", "Bread rises for an hour.", "Nobody knows what this says."]


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    shown = re.search(r"```python\n# titles\.py\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert shown is not None
    (tmp_path / "titles.py").write_text(shown[1], encoding="utf-8")
    (tmp_path / "documents").mkdir()
    rows = [{"id": f"doc-{number}", "text": text} for number, text in enumerate(TEXTS)]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "documents" / "part-00000.parquet")
    path = tmp_path / "recipe.yaml"
    path.write_text(RECIPE.replace("FOLDER", str(tmp_path)), encoding="utf-8")
    return path


def test_it_makes_documents_with_their_lineage(recipe: Path) -> None:
    """A title of too many words is refused, and counted under the task's name."""
    runs = recipe.parent / "runs"

    def reply(body: dict[str, Any], headers: dict[str, str]) -> Reply:
        text = body["messages"][0]["content"].rpartition("\n")[2]
        return completion("a title that has too many words in it" if "Nobody" in text else text.split()[0].upper())

    with serving(reply) as url:
        changes = {"synthesize.endpoint.url": url}
        folder = run_recipe(load_recipe(recipe, changes), runs).stages[0].folder
    rows = pyarrow.parquet.read_table(folder / "documents").to_pylist()
    assert [(row["text"], row["parent_id"], row["task"], row["source"], row["verified"]) for row in rows] == [
        (f"# SHIPS\n\n{TEXTS[0]}", "doc-0", "titles", "synthetic-titles", "checks"),
        (f"# BREAD\n\n{TEXTS[1]}", "doc-1", "titles", "synthetic-titles", "checks"),
    ]
    (refused,) = read_jsonl(folder / "rejected.jsonl")
    assert (refused["task"], refused["reason"]) == ("titles", "no title")
    assert read_json(folder / "DONE")["summary"]["tasks"] == {
        "titles": {"requests": 3, "accepted": 2, "refused": {"no title": 1}}
    }
    assert [work.status for work in list_work(load_recipe(recipe, changes), runs)] == ["done"]
    with (recipe.parent / "titles.py").open("a", encoding="utf-8") as file:
        file.write("# changed\n")
    assert [work.status for work in list_work(load_recipe(recipe, changes), runs)] == ["to do"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("titles.py:Titles", "titles.py:Title", "titles.py has no Title\n  fix: did you mean Titles?"),
        ("titles.py:Titles", "rephase", "there is no synthesis task rephase\n  fix: did you mean rephrase?"),
        (
            "titles.py:Titles",
            "titles.py:Refused",
            "does not derive from SynthesisTask, the base class of every synthesis task",
        ),
        (
            "titles.py:Titles",
            "half.py:Half",
            "Half has no check, which every synthesis task has\n  fix: write def check(",
        ),
        ("longest_title", "longest_titel", "synthesize.tasks.0.longest_titel\n  fix: did you mean longest_title?"),
        ("shortest: 3", "shortest: 500", "no passage has at least 500 and at most 400 words"),
    ],
)
def test_errors_say_where_and_what_to_do(recipe: Path, old: str, new: str, said: str) -> None:
    head = "from ingot.data.synthesize.task import PassageTask\n\nclass Half(PassageTask):\n"
    half = f"{head}    def ask(self, passage, number): pass\n"
    (recipe.parent / "half.py").write_text(half, encoding="utf-8")
    assert_refused(recipe, old, new, said)
