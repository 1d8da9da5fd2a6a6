"""Means and errors of settings against scipy, and what is said of the best."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import scipy.stats

from ingot.evals.scores.scores import Metric, metric_of_units
from ingot.evals.scores.statistics import Estimate
from ingot.lab.compare import Comparison, Setting, compare, notes
from ingot.lab.grid import Axis, Trial, make_trials
from ingot.lab.sweep import Outcome, Sweep
from ingot.lab.target import Target

RATES = (1e-4, 1e-3, 1e-2)


def metric(value: float, *, higher: bool = True) -> Metric:
    return Metric("accuracy", Estimate(value, math.inf, 1), "Accuracy", higher)


def sweep(values: tuple[float, ...] = RATES, seeds: tuple[int, ...] = ()) -> Sweep:
    axes = (Axis("sft.lr", values),)
    target = Target("accuracy", "sft", ())
    return Sweep(Path("r.yaml"), "r", axes, (), seeds, target, ("sft",), tuple(make_trials(axes, seeds)), ())


def outcomes(made: Sweep, found: list[Metric | None]) -> list[Outcome]:
    return [
        Outcome(trial, "failed", Path("f"), error="CheckFailed: x")
        if each is None
        else Outcome(trial, "done", Path("f"), each)
        for trial, each in zip(made.trials, found, strict=True)
    ]


def compared(found: list[Metric | None], values: tuple[float, ...] = RATES, seeds: tuple[int, ...] = ()) -> Comparison:
    made = sweep(values, seeds)
    return compare(made, outcomes(made, found))


def test_error_over_seeds_is_scipys_and_differences_have_welchs() -> None:
    table = np.array([[0.1, 0.5, 0.6], [0.3, 0.45, 0.9], [0.2, 0.55, 0.45]])  # a row for each seed
    result = compared([metric(value) for value in table.ravel()], seeds=(1, 2, 3))
    assert [dict(setting.trial.values)["sft.lr"] for setting in result.settings] == [1e-2, 1e-3, 1e-4]
    for setting, column in zip(result.settings, table.T[::-1], strict=True):
        found = setting.estimate
        assert found is not None
        assert found.value == pytest.approx(column.mean())
        assert found.standard_error == pytest.approx(scipy.stats.sem(column))
    best, worst = result.settings[0], result.settings[2]
    welch = scipy.stats.ttest_ind(table[:, 2], table[:, 0], equal_var=False)
    difference = best.minus(worst)
    assert difference.p_value() == pytest.approx(welch.pvalue)
    assert difference.value / difference.standard_error == pytest.approx(welch.statistic)


def test_one_seed_is_compared_on_the_same_questions() -> None:
    generator = np.random.default_rng(0)
    answers = (generator.random((2, 200)) < [[0.5], [0.6]]).astype(float)
    metrics = [metric_of_units("a", {str(n): float(v) for n, v in enumerate(row)}, "A") for row in answers]
    result = compared(list(metrics), (1e-4, 1e-3))
    paired = scipy.stats.ttest_rel(answers[1], answers[0])
    difference = result.settings[0].minus(result.settings[1])
    assert difference.value / difference.standard_error == pytest.approx(paired.statistic)


def test_less_can_be_better() -> None:
    result = compared([metric(2.0, higher=False), metric(1.0, higher=False), metric(3.0, higher=False)])
    assert result.best is not None and dict(result.best.trial.values)["sft.lr"] == 1e-3
    assert not any("widen" in line for line in notes(result))


def measured(value: float, error: float) -> Metric:
    return Metric("accuracy", Estimate(value, error, 100), "Accuracy")


@pytest.mark.parametrize(("second", "close"), [(0.79, True), (0.72, False)])
def test_what_is_within_one_standard_error(second: float, close: bool) -> None:
    result = compared([measured(0.1, 0.05), measured(0.8, 0.05), measured(second, 0.05)])
    lines = "\n".join(notes(result))
    assert ("within one standard error of the best: lr=0.01" in lines) == close
    assert ("no other setting" in lines) == (not close)
    assert "0.8 ± 0.05 (standard error over 100 questions)" in lines
    assert "best of 3" in lines


def test_unknown_errors_are_not_called_certain() -> None:
    result = compared([metric(0.1), metric(0.8), metric(0.2)])
    assert [dict(each.trial.values)["sft.lr"] for each in result.close] == [1e-2, 1e-4]
    assert any("not known" in line for line in notes(result))


@pytest.mark.parametrize(
    ("values", "best", "said"),
    [
        (RATES, 0, "smallest that was tried: widen the range, as with 1e-05"),
        (RATES, 2, "largest that was tried: widen the range, as with 0.1"),
        (RATES, 1, None),
        ((500, 2000), 1, "as with 8000"),
        ((0.0, 0.1, 0.2), 2, "as with 0.3"),
    ],
)
def test_the_edge_of_the_range(values: tuple[float, ...], best: int, said: str | None) -> None:
    found: list[Metric | None] = [measured(0.9 if number == best else 0.1, 0.01) for number in range(len(values))]
    lines = [line for line in notes(compared(found, values)) if "widen" in line]
    assert len(lines) == (said is not None) and all(said in line for line in lines if said)


def test_the_edge_is_no_advice_where_another_value_is_as_good() -> None:
    assert not any(
        "widen" in line for line in notes(compared([measured(0.9, 0.05), measured(0.89, 0.05), measured(0.1, 0.05)]))
    )


def test_failures_are_last_and_named() -> None:
    result = compared([None, measured(0.5, 0.1), measured(0.4, 0.1)])
    assert result.settings[-1].estimate is None
    assert [dict(each.trial.values)["sft.lr"] for each in result.failed] == [1e-4]
    assert notes(compared([None, None, None])) == ["nothing was measured"]


def test_a_seed_that_failed_leaves_an_error_that_is_not_known() -> None:
    setting = Setting(
        (Outcome(Trial(()), "failed", Path(), error="x"), Outcome(Trial(()), "done", Path(), measured(0.5, 0.1)))
    )
    assert setting.estimate == Estimate(0.5, math.inf, 1)
