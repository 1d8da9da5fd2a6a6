"""Comparisons of scores: against scipy, with pairs, parts of pairs and without; what is printed."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from scipy import stats

from ingot.cli.show_compare import show_comparison
from ingot.evals.scores.compare import MetricChange, change_between, compare, compare_scores, distinct_names
from ingot.evals.scores.scores import SCORES, Metric, load_scores, metric_of_units, save_scores
from ingot.workspace.errors import RecipeError

GENERATOR = random.Random(2)
FIRST = {f"q-{number}": float(GENERATOR.random() < 0.5) for number in range(200)}
SECOND = {unit: 1.0 if GENERATOR.random() < 0.2 else value for unit, value in FIRST.items()} | {"q-3": 0.0}


def accuracy(units: dict[str, float], name: str = "quiz/accuracy") -> dict[str, Metric]:
    return {name: metric_of_units(name, units, "Accuracy, quiz", chance=0.25)}


def test_paired_differences_are_scipys_and_name_the_questions() -> None:
    [row] = compare_scores({"a": accuracy(FIRST), "b": accuracy(SECOND)}).rows
    [change] = row.changes
    assert change is not None
    theirs = stats.ttest_rel(list(SECOND.values()), list(FIRST.values()))
    assert (change.p_value, change.corrected) == pytest.approx((theirs.pvalue, theirs.pvalue))
    assert change.difference.interval() == pytest.approx(tuple(theirs.confidence_interval()))
    assert change.gained == tuple(unit for unit in FIRST if SECOND[unit] > FIRST[unit])
    assert change.lost == tuple(unit for unit in FIRST if SECOND[unit] < FIRST[unit]) == ("q-3",)
    assert change.better is True and change.certain and change.shared == 200


def test_of_another_limit_the_shared_questions_are_compared_and_of_others_the_means() -> None:
    short = dict(list(SECOND.items())[:80])
    [row] = compare_scores({"a": accuracy(FIRST), "b": accuracy(short)}).rows
    [change] = row.changes
    assert change is not None and change.shared == 80
    gained, lost = len(change.gained), len(change.lost)
    assert change.p_value == pytest.approx(stats.binomtest(gained, gained + lost).pvalue)  # fewer than 100 rows: exact
    assert change.difference.value == pytest.approx((gained - lost) / 80)
    other = {f"other-{unit}": value for unit, value in SECOND.items()}
    [row] = compare_scores({"a": accuracy(FIRST), "b": accuracy(other)}).rows
    theirs = stats.ttest_ind(list(SECOND.values()), list(FIRST.values()), equal_var=False)
    assert row.changes[0] is not None and (row.changes[0].shared, row.changes[0].gained) == (0, ())
    assert row.changes[0].p_value == pytest.approx(theirs.pvalue)


def test_lower_may_be_better_and_a_missing_metric_has_no_change() -> None:
    bits = {f"row-{number}": 2.0 + number / 100 for number in range(10)}
    fewer = {unit: value - 0.1 - int(unit[4:]) / 1000 for unit, value in bits.items()}
    scores = {
        "a": {"bits": metric_of_units("bits", bits, "Bits", False)},
        "b": {"bits": metric_of_units("bits", fewer, "Bits", False), **accuracy(FIRST)},
    }
    rows = {row.name: row for row in compare_scores(scores).rows}
    change = rows["bits"].changes[0]
    assert change is not None and change.better is True and len(change.gained) == 10 and change.difference.value < 0
    assert rows["quiz/accuracy"].changes == (None,)


def test_the_smallest_difference_that_is_shown_is_shown_four_times_in_five() -> None:
    """By drawing: of comparisons of 200 questions whose true difference it is, 80 % have p < 0.05."""
    generator = random.Random(3)
    before = {str(unit): generator.gauss(0, 1) for unit in range(200)}
    noise = [{unit: generator.gauss(0, 0.5) for unit in before} for _ in range(400)]

    def change(shift: float, each: dict[str, float]) -> MetricChange:
        after = {unit: value + each[unit] + shift for unit, value in before.items()}
        return change_between(metric_of_units("m", before, "M"), metric_of_units("m", after, "M"))

    shown = 2.8016 * 0.5 / 200**0.5  # the quantiles of 97.5 % and of 80 %, of a standard error of 0.035
    changes = [change(shown, each) for each in noise]
    assert sum(each.smallest_shown for each in changes) / 400 == pytest.approx(shown, rel=0.02)
    assert sum(each.p_value < 0.05 for each in changes) / 400 == pytest.approx(0.8, abs=0.05)


def test_many_differences_are_corrected_together() -> None:
    """Of twenty metrics without any difference about one has p < 0.05; corrected, none has."""
    generator = random.Random(2)
    scores: dict[str, dict[str, Metric]] = {"a": {}, "b": {}}
    for number in range(20):
        for metrics in scores.values():
            units = {str(unit): generator.gauss(0, 1) for unit in range(120)}
            metrics[f"m{number}"] = metric_of_units(f"m{number}", units, "M")
    comparison = compare_scores(scores)
    found = [change for row in comparison.rows for change in row.changes if change is not None]
    assert comparison.tests == 20 and any(change.p_value < 0.05 for change in found)
    assert not any(change.certain for change in found)
    smallest = min(found, key=lambda change: change.p_value)
    assert smallest.corrected == pytest.approx(20 * smallest.p_value)


def test_scores_on_disk_keep_clusters_chance_and_marks(tmp_path: Path) -> None:
    passages = {unit: f"passage-{number // 4}" for number, unit in enumerate(FIRST)}
    for name, units in (("a", FIRST), ("b", SECOND)):
        metric = metric_of_units("quiz/accuracy", units, "Accuracy", clusters=passages, chance=0.25)
        save_scores(tmp_path / name / "scores", [metric], [])
    loaded = load_scores(tmp_path / "a")["quiz/accuracy"]
    assert loaded.clusters == passages and loaded.chance == 0.25 and loaded.held_out
    assert loaded.estimate.freedom == 49 and loaded == metric_of_units(
        "quiz/accuracy", FIRST, "Accuracy", clusters=passages, chance=0.25
    )
    change = compare([tmp_path / "a", tmp_path / "b" / "scores"]).rows[0].changes[0]
    alone = compare_scores({"a": accuracy(FIRST), "b": accuracy(SECOND)}).rows[0].changes[0]
    assert change is not None and alone is not None
    assert change.difference.freedom == 49 and change.difference.standard_error != alone.difference.standard_error


def test_scores_of_earlier_versions_are_read(tmp_path: Path) -> None:
    (tmp_path / "scores").mkdir()
    row = {"value": 0.5, "standard_error": None, "count": 1, "higher_is_better": True, "label": "Accuracy"}
    (tmp_path / "scores" / SCORES).write_text(json.dumps({"accuracy": row}))
    metric = load_scores(tmp_path)["accuracy"]
    assert metric.held_out and metric.chance is None and metric.estimate.p_value() == 1.0


def test_names_and_what_is_refused(tmp_path: Path) -> None:
    assert distinct_names([tmp_path / "x/a/scores", tmp_path / "x/b"]) == ["a", "b"]
    assert distinct_names([tmp_path / "x/a", tmp_path / "y/a/scores"]) == ["x/a", "y/a"]
    assert distinct_names([tmp_path / "a", tmp_path / "a"])[0].endswith("a (1)")
    with pytest.raises(RecipeError, match="two folders"):
        compare([tmp_path])


def test_what_is_printed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    both = {
        "a": accuracy(FIRST) | accuracy(FIRST, "same/accuracy"),
        "b": accuracy(SECOND) | accuracy(FIRST, "same/accuracy"),
    }
    show_comparison(compare_scores(both))
    printed = capsys.readouterr().out
    line = next(line for line in printed.split("\n") if line.startswith("quiz/accuracy "))
    assert "<0.0001" in line and "200 in pairs" in line
    assert "better; of 200 questions" in printed and "1 lost (q-3)" in printed
    assert "shows from: a true difference of this size" in printed
    assert "corrected ones allow for all 2 in the table (Holm)" in printed
    show_comparison(compare_scores({"a": accuracy(FIRST), "b": accuracy(FIRST)}))
    assert "no difference is larger than chance explains" in capsys.readouterr().out
    show_comparison(compare_scores({"a": accuracy(FIRST), "b": accuracy(FIRST, "other/accuracy")}))
    printed = capsys.readouterr().out
    assert "they have no metric in common" in printed and "chance explains" not in printed
