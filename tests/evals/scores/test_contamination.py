"""Clean and dirty parts of scores, joined to what the decontaminate step finds of real questions in documents."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import ClassVar

import pytest

from ingot.data.apply import apply
from ingot.data.steps.decon import DeconStep
from ingot.evals.bases.file_suite import FileSuite
from ingot.evals.bases.suite import Measured, Subject
from ingot.evals.scores.contamination import leaked_rows, parts_of, with_parts
from ingot.evals.scores.scores import metric_of_units
from ingot.workspace.interrupt import StopSignal
from tests.making.rows import write_rows

SUBJECT = Subject("model", "text", StopSignal())
LEAKED = (3, 17, 40)


class Quiz(FileSuite):
    """Whatever a test says each row scores."""

    local: ClassVar[tuple[str, ...]] = ("gsm8k/test_dev.jsonl*",)

    def measure(self, subject: Subject) -> Measured:
        units = {f"q-{number:03d}": score(number) for number, _ in enumerate(self.rows(subject))}
        return Measured([metric_of_units("quiz/accuracy", units, "Accuracy, quiz")])


def score(number: int) -> float:
    """Right on what leaked, and on a third of the others."""
    return float(number in LEAKED or number % 3 == 1)


def test_the_parts_of_real_questions_that_leaked(shared_data: Path, tmp_path: Path) -> None:
    suite, subject = Quiz(limit=60), Subject("model", "text", StopSignal(), data=shared_data)
    rows = suite.rows(subject)
    documents = [f"Homework. {rows[number][1]['question']} {rows[number][1]['answer']}" for number in LEAKED]
    documents.append("Nothing of a quiz is in here, only a sentence about the weather of the last week.")
    step = DeconStep(against=[str(shared_data / "gsm8k/test_dev.jsonl.gz")])
    report = step.report([apply(step, documents)]).content
    (tmp_path / "decon.json").write_text(json.dumps(report))
    (tmp_path / "funnel.json").write_text("[]")  # what else lies there
    leaked = leaked_rows(tmp_path)
    assert {name: len(ids) for name, ids in leaked.items() if ids} == {"gsm8k/test_dev": len(LEAKED)}

    found = {metric.name: metric for metric in with_parts(suite.measure(subject), suite, subject, leaked).metrics}
    assert list(found) == ["quiz/accuracy", "quiz/accuracy/clean", "quiz/accuracy/dirty"]
    dirty, clean = found["quiz/accuracy/dirty"], found["quiz/accuracy/clean"]
    assert set(dirty.units) == {f"q-{number:03d}" for number in LEAKED} and dirty.estimate.value == 1.0
    others = [score(number) for number in range(60) if number not in LEAKED]
    assert clean.estimate.value == pytest.approx(statistics.fmean(others))
    assert clean.estimate.standard_error == pytest.approx(statistics.stdev(others) / len(others) ** 0.5)
    assert dirty.minus(clean).p_value() < 0.05  # known by heart


def test_without_leaks_nothing_is_split(tmp_path: Path) -> None:
    file = write_rows(tmp_path / "quiz.jsonl", ({"id": f"row-{number}", "question": "?"} for number in range(4)))
    suite = Quiz(files=(str(file),))
    measured = suite.measure(SUBJECT)
    assert with_parts(measured, suite, SUBJECT, {}) is measured
    assert with_parts(measured, suite, SUBJECT, {"other/quiz": {"row-1"}}) is measured
    split = with_parts(measured, suite, SUBJECT, {f"{tmp_path.name}/quiz": {"row-1", "row-2"}})
    assert set(split.metrics[2].units) == {"q-001", "q-002"}


def test_units_that_are_parts_of_rows_go_with_their_row() -> None:
    units = {"a/1": 1.0, "a/2": 0.0, "b/1": 1.0, "c/1": 0.0, "c/2": 0.0}
    clusters = {unit: unit[0] for unit in units}
    clean, dirty = parts_of(metric_of_units("m", units, "M", clusters=clusters), 3, {2})
    assert set(dirty.units) == {"c/1", "c/2"} and set(clean.units) == {"a/1", "a/2", "b/1"}
    assert clean.estimate.freedom == 1  # two clusters
    assert parts_of(metric_of_units("m", units, "M"), 3, {2}) == []  # nobody knows whose they are
