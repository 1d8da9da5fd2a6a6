"""Subsets that stand for a suite: on models of known ability, and on models that nobody has seen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from pydantic import ValidationError
from scipy import stats

from ingot.evals.bases.file_suite import FileSuite
from ingot.evals.bases.suite import Measured, Subject
from ingot.evals.bases.suites import SUITES
from ingot.evals.engine.request import Likely, Passage
from ingot.evals.scores.scores import Metric, metric_of_units, save_scores
from ingot.evals.scores.subset import Answers, by_strata, choose_subset, greedily, item_rest, judge, subset_of
from ingot.evals.suites.mmlu import Mmlu
from ingot.workspace.errors import ArtifactError, RecipeError
from ingot.workspace.interrupt import StopSignal
from tests.making.rows import write_rows

QUESTIONS = 600


def models(count: int, seed: int) -> Answers:
    """Answers by item response theory (2PL): P(right) = 1 / (1 + exp(-a (ability - b))); the questions are always the same."""
    questions = np.random.default_rng(0)
    a, b = questions.lognormal(0, 0.5, QUESTIONS), questions.normal(0.5, 1.2, QUESTIONS)
    generator = np.random.default_rng(seed)
    ability = generator.normal(0, 1, (count, 1))
    return (generator.random((count, QUESTIONS)) < 1 / (1 + np.exp(-a * (ability - b)))).astype(float)


def scores(answers: Answers) -> dict[str, dict[str, Metric]]:
    return {
        f"model-{number}": {
            "quiz/accuracy": metric_of_units(
                "quiz/accuracy", {f"q-{place}": value for place, value in enumerate(row.tolist())}, "Accuracy"
            )
        }
        for number, row in enumerate(answers)
    }


def test_discrimination_is_the_point_biserial_correlation() -> None:
    answers = models(24, 1)
    found = item_rest(answers)
    for question in range(0, QUESTIONS, 37):
        rest = np.delete(answers, question, axis=1).mean(axis=1)
        if answers[:, question].std() > 0:
            theirs = stats.pointbiserialr(answers[:, question].astype(bool), rest).statistic
            assert found[question] == pytest.approx(theirs)
        else:
            assert found[question] == 0


def test_greedy_is_the_best_first_step_and_never_repeats() -> None:
    answers = models(12, 2)
    whole = answers.mean(axis=1)
    one = greedily(answers, 1)
    assert one == [int(np.argmin([((answers[:, q] - whole) ** 2).sum() for q in range(QUESTIONS)]))]
    assert len(set(greedily(answers, 100))) == len(set(by_strata(answers, 100))) == 100


def test_what_the_file_says_holds_for_models_that_nobody_has_seen() -> None:
    subset = subset_of(scores(models(30, 3)), 40, "quiz/accuracy")
    unseen = models(300, 4)
    means, whole = unseen[:, subset.rows].mean(axis=1), unseen.mean(axis=1)
    error, correlation = np.abs(means - whole).mean(), np.corrcoef(means, whole)[0, 1]
    assert subset.fit.error == pytest.approx(error, rel=0.3)
    assert subset.fit.correlation == pytest.approx(correlation, abs=0.02)
    randoms = [np.random.default_rng(seed).choice(QUESTIONS, 40, replace=False) for seed in range(20)]
    theirs = [np.corrcoef(unseen[:, draw].mean(axis=1), whole)[0, 1] for draw in randoms]
    assert correlation > np.mean(theirs) + 0.01 and subset.random.correlation == pytest.approx(
        np.mean(theirs), abs=0.02
    )


def test_folds_leave_models_out() -> None:
    """A way that learns the answers of the models it sees by heart must not profit."""
    answers = models(10, 5)
    seen: list[int] = []

    def remember(some: Answers, count: int) -> list[int]:
        seen.append(len(some))
        return list(range(count))

    fit = judge(remember, answers, 50, 0)
    assert seen == [8] * 5
    assert fit.error == pytest.approx(np.abs(answers[:, :50].mean(axis=1) - answers.mean(axis=1)).mean())


class Quiz(FileSuite):
    """Rows by their numbers."""

    local: ClassVar[tuple[str, ...]] = ()

    def measure(self, subject: Subject) -> Measured:
        return Measured()


def test_a_suite_asks_the_subset(tmp_path: Path) -> None:
    folders = []
    for name, metrics in scores(models(8, 6)).items():
        save_scores(tmp_path / name / "scores", metrics.values(), [])
        folders.append(tmp_path / name)
    file = tmp_path / "subset.json"
    subset = choose_subset(folders, 25, "quiz/accuracy", file)
    written = json.loads(file.read_text())
    assert written["count"] == 25 and written["of"] == QUESTIONS and written["models"][0] == "model-0"
    assert written["correlation"] == subset.fit.correlation and written["random"]["error"] == subset.random.error
    rows = write_rows(tmp_path / "rows.jsonl", ({"id": f"q-{number}"} for number in range(QUESTIONS)))
    suite = Quiz(files=(str(rows),), subset=str(file))
    asked = suite.rows(Subject("model", "text", StopSignal()))
    assert [row["id"] for _, row in asked] == list(subset.questions)
    assert len(suite.rows(Subject("model", "text", StopSignal(), limit=7))) == 7
    before = suite.outside()
    file.write_text(json.dumps({**written, "rows": [1, 2]}))
    assert suite.outside() != before  # another subset is other work
    rows.write_text(rows.read_text() + '{"id": "one more"}\n')
    with pytest.raises(ArtifactError, match="among 600 questions, and the suite has 601"):
        suite.rows(Subject("model", "text", StopSignal()))
    file.write_text("{}")
    with pytest.raises(ArtifactError, match="not a file of a subset"):
        suite.rows(Subject("model", "text", StopSignal()))


def test_what_cannot_be_chosen_by() -> None:
    some = scores(models(4, 7))
    with pytest.raises(RecipeError, match="by 4 models or more, given 2"):
        subset_of(dict(list(some.items())[:2]), 10, "quiz/accuracy")
    with pytest.raises(RecipeError, match="model-0 has no quiz/acuracy"):
        subset_of(some, 10, "quiz/acuracy")
    with pytest.raises(RecipeError, match="600 of 600 questions"):
        subset_of(some, 600, "quiz/accuracy")
    short = metric_of_units("quiz/accuracy", {"q-1": 1.0}, "Accuracy")
    with pytest.raises(ArtifactError, match="not measured on the same questions"):
        subset_of({**some, "model-3": {"quiz/accuracy": short}}, 10, "quiz/accuracy")


def test_suites_with_an_order_of_their_own_ask_the_subset_too(shared_data: Path, tmp_path: Path) -> None:
    """MMLU takes its subjects in turn and reads its rows in another way than FileSuite does."""
    subject = Subject("model", "text", StopSignal(), data=shared_data)
    whole = Mmlu().rows(subject)
    file = tmp_path / "subset.json"
    file.write_text(json.dumps({"rows": [5, 70, 7000], "of": len(whole)}))
    assert Mmlu(subset=str(file)).rows(subject) == [whole[5], whole[70], whole[7000]]


def test_text_bits_reads_the_subset(tmp_path: Path) -> None:
    """Of one domain; of several it cannot be said which texts are meant, and a recipe that does so is not read."""
    texts = [f"Text number {number} of the book.\n" for number in range(9)]
    rows, file = tmp_path / "book.jsonl", tmp_path / "subset.json"
    write_rows(rows, ({"text": text} for text in texts))
    file.write_text(json.dumps({"rows": [1, 4, 8], "of": 9}))
    options = {"suite": "text_bits", "domains": {"book": [str(rows)]}, "subset": str(file)}
    suite = SUITES.read(options)
    measuring = suite.measure(Subject("model", "text", StopSignal()))
    assert not isinstance(measuring, Measured)
    assert next(measuring) == [Passage(texts[number]) for number in (1, 4, 8)]
    with pytest.raises(StopIteration) as end:
        measuring.send([Likely(-float(number), False, 5) for number in (6, 7, 8)])
    (metric,) = end.value.value.metrics
    size = sum(len(texts[number]) for number in (1, 4, 8))
    assert metric.estimate.value == pytest.approx(21 / np.log(2) / size) and len(metric.units) == 3
    before = suite.outside()
    file.write_text(json.dumps({"rows": [1], "of": 8}))
    assert suite.outside() != before
    measuring = suite.measure(Subject("model", "text", StopSignal()))
    assert not isinstance(measuring, Measured)
    with pytest.raises(ArtifactError, match="among 8 questions, and the suite has 9"):
        next(measuring)
    with pytest.raises(ValidationError, match="a subset is of the texts of one domain"):
        SUITES.read({**options, "domains": {"book": [str(rows)], "more": [str(rows)]}})
