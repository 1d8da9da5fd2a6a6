"""A newcomer's filter: one file outside the package and at most 25 lines, run by a recipe; and what is said when it is wrong."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from ingot.data.config import CurateConfig
from ingot.data.outside import read_step
from ingot.recipe.flow import run_recipe
from ingot.recipe.graph import hash_stages
from ingot.recipe.load import load_recipe
from ingot.workspace.errors import IngotError
from tests.making.rows import write_rows

MINE = '''
"""My own steps."""


def long_enough(text: str, words: int = 5) -> bool:
    return len(text.split()) >= words


def shout(text: str) -> str:
    return text.upper()


def share_of_a(text: str, *, letter: str = "A") -> float:
    return text.count(letter) / len(text)


def counts(text: str) -> dict[str, int]:
    if "forbidden" in text:
        raise ValueError("I will not read this")
    return {"characters": len(text)}
'''
TEXTS = ["a short one", "a text of six words here", "another text that is long enough to stay"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "my_steps.py").write_text(MINE, encoding="utf-8")
    rows = [{"id": f"row {number}", "text": text} for number, text in enumerate(TEXTS)]
    write_rows(tmp_path / "rows.jsonl", rows)
    return tmp_path


def recipe(project: Path, steps: str, workers: int = 1) -> Path:
    path = project / "recipe.yaml"
    source = f"sources: [{{files: {project / 'rows.jsonl'}, id: id}}]"
    path.write_text(f"stages:\n  curate:\n    {source}\n    workers: {workers}\n    steps: {steps}\n", encoding="utf-8")
    return path


def documents(project: Path, steps: str, workers: int = 1) -> dict[str, dict[str, Any]]:
    run_recipe(load_recipe(recipe(project, steps, workers)), project / "runs")
    return {row["id"]: row for row in rows_of(project, "documents")}


def rows_of(project: Path, artifact: str) -> list[dict[str, Any]]:
    paths = sorted((project / "runs" / "recipe").glob(f"curate-*/{artifact}/part-*.parquet"))
    return [row for path in paths for row in pyarrow.parquet.read_table(path).to_pylist()]


def test_the_filter_is_at_most_25_lines() -> None:
    assert len(MINE.strip().splitlines()) <= 25


@pytest.mark.parametrize("workers", [1, 2])
def test_functions_on_a_text(project: Path, workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingot.data.engine.work.SMALL_BYTES", 0)  # small as it is, use the processes
    steps = "[{step: my_steps.py:long_enough, words: 6}, {step: my_steps.py:shout}, {step: my_steps.py:share_of_a},"
    found = documents(project, f"{steps} {{step: my_steps.py:counts}}]", workers)
    assert {name: row["text"] for name, row in found.items()} == {
        "row 1": TEXTS[1].upper(), "row 2": TEXTS[2].upper(),
    }  # fmt: skip
    assert found["row 1"]["share_of_a"] == pytest.approx(TEXTS[1].count("a") / len(TEXTS[1]))
    assert json.loads(found["row 2"]["counts"]) == {"characters": len(TEXTS[2])}
    assert [(row["id"], row["step"], row["rule"]) for row in rows_of(project, "removed")] == [
        ("row 0", "long_enough", "long_enough")
    ]


def test_a_class_of_ones_own(project: Path) -> None:
    (project / "mine.py").write_text(
        "import pyarrow\nfrom pydantic import Field\nfrom ingot.data.step import PerDocument, Rule, at_least, numbers\n\n"
        "class Mine(PerDocument):\n    decides = frozenset({'least'})\n"
        "    least: int = Field(default=3, ge=1, description='fewest characters')\n"
        "    def writes(self): return ('_length',)\n"
        "    def annotate(self, documents):\n"
        "        return {'_length': pyarrow.array([len(text) for text in documents.column('text').to_pylist()])}\n"
        "    def decide(self, columns): return [at_least('length', numbers(columns, '_length'), self.least)]\n",
        encoding="utf-8",
    )
    assert set(documents(project, "[{step: mine.py:Mine, least: 12}]")) == {"row 1", "row 2"}


def test_the_content_of_the_file_is_part_of_the_hash(project: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = recipe(project, "[{step: my_steps.py:long_enough}]")
    first, key = hash_stages(load_recipe(path)), step_of(project).annotation_key()
    moved = tmp_path_factory.mktemp("moved")
    (moved / "my_steps.py").write_text(MINE, encoding="utf-8")
    assert step_of(moved).annotation_key() == key
    (project / "my_steps.py").write_text(MINE.replace(">=", ">"), encoding="utf-8")
    assert hash_stages(load_recipe(path)) != first
    assert step_of(project).annotation_key() != key


def step_of(project: Path) -> Any:
    config = CurateConfig.model_validate({"steps": [{"step": f"{project / 'my_steps.py'}:long_enough"}]})
    return config.steps[0]


def test_a_step_travels_to_other_processes(project: Path) -> None:
    step = step_of(project)
    again = pickle.loads(pickle.dumps(step))
    assert again.model_dump() == step.model_dump()
    assert read_step(step.model_dump()).writes() == ("_long_enough",)


@pytest.mark.parametrize(
    ("steps", "problem"),
    [
        ("[{step: no_file.py:Mine}]", "there is no file"),
        ("[{step: my_steps.py:long_enuf}]", "has no long_enuf\n  fix: did you mean long_enough?"),
        ("[{step: my_steps.py:long_enough, wrods: 3}]", "unknown key curate.steps.0.wrods\n  fix: did you mean words?"),
        ("[{step: my_steps.py:long_enough, words: many}]", "expected a whole number, given the text 'many'"),
        ("[{step: json:JSONDecoder}]", "json:JSONDecoder does not derive from Step, the base class of every data step"),
        ("[{step: textwrap:dedent}]", "textwrap:dedent does not say what it returns for a text"),
    ],
)
def test_errors_are_those_of_built_in_steps(project: Path, steps: str, problem: str) -> None:
    with pytest.raises(IngotError) as caught:
        load_recipe(recipe(project, steps))
    assert problem in str(caught.value)
    assert "recipe.yaml:5" in str(caught.value)


def test_a_function_that_raises_names_the_document(project: Path) -> None:
    write_rows(project / "rows.jsonl", [{"id": "row 7", "text": "a forbidden text"}])
    with pytest.raises(IngotError, match=r"counts raised ValueError: I will not read this") as caught:
        documents(project, "[{step: my_steps.py:counts}]")
    assert "document row 7" in str(caught.value)
