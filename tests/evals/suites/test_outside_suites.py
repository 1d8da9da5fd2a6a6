"""Suites of the user's own that derive from those of the package: their metrics have short names, wherever the file lies."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingot.evals.bases.generations import Graded, Item
from ingot.evals.bases.suite import Suite
from ingot.evals.engine.request import Question
from ingot.workspace.outside import load_outside
from tests.evals.suites.asking import measure, values, written
from tests.making.rows import write_rows

CODE = """
from ingot.evals.bases.choices import Item as Exam
from ingot.evals.bases.choice_suite import ChoiceSuite
from ingot.evals.bases.generations import GeneratedSuite, Grade, Item
from ingot.evals.bases.instruction_rows import InstructionRows
from ingot.evals.bases.judged import JudgedSuite
from ingot.evals.engine.request import Question

class MyWords(GeneratedSuite):
    labels = {"right": "Words"}
    def items(self, subject):
        return [Item(row["q"], Question(row["q"])) for _, row in self.rows(subject)]
    def grade(self, item, answer):
        return Grade({"right": float(answer == item.id)})

class MyRules(InstructionRows):
    pass

class MyChoice(ChoiceSuite):
    def item(self, row, place):
        return Exam(row["q"], ("a", "b"), 0)

class MyTaste(JudgedSuite):
    labels = {"liked": "Taste"}
    def items(self, subject):
        return []
    def judged(self, item, answer, judge):
        return Grade({"liked": 1.0})
"""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(CODE)
    instruction = {"key": "1", "prompt": "Say it.", "instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}
    for name, rows in (("words", [{"q": "one"}, {"q": "two"}]), ("rules", [instruction])):
        write_rows(tmp_path / f"{name}.jsonl", rows)
    return tmp_path


def suite(folder: Path, name: str, **options: object) -> Suite:
    found: Suite = load_outside(f"{folder}/mine.py:{name}")(**options)
    return found


def test_metrics_and_samples_have_the_class_name_in_lower_case(mine: Path) -> None:
    words = measure(suite(mine, "MyWords", files=(f"{mine}/words.jsonl",)), lambda request: written("one", "length"))
    assert values(words) == {"my_words/right": 0.5, "my_words/cut": 1.0}
    assert {row.kind for row in words.samples} == {"my_words"}
    rules = measure(suite(mine, "MyRules", files=(f"{mine}/rules.jsonl",)), lambda request: "It.")
    assert rules.metrics and all(name.startswith("my_rules/") for name in values(rules))
    taste = suite(mine, "MyTaste")
    graded = [Graded(Item("1", Question("?")), written("yes"), taste.judged(None, "", None))]  # type: ignore[attr-defined]
    assert [metric.name for metric in taste.metrics(graded)] == ["my_taste/liked"]  # type: ignore[attr-defined]
    assert suite(mine, "MyChoice").metric_prefix == "my_choice"  # type: ignore[attr-defined]
