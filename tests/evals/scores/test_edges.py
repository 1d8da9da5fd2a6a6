"""Edges of the statistics, by hand and against scipy: the smallest cases, values at a limit, and what is not defined.

Each was found as a fault of one line that no other fast test noticed (tools/mutate.py --room statistics).
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from ingot.evals.bases.spread import in_turn
from ingot.evals.scores import distributions
from ingot.evals.scores.compare import ENOUGH_SHARED, change_between, distinct_names
from ingot.evals.scores.distributions import two_sided
from ingot.evals.scores.power import noise_of_samples
from ingot.evals.scores.ranking import decision_accuracy, pearson
from ingot.evals.scores.scores import metric_of_units
from ingot.evals.scores.statistics import (
    FEW,
    Estimate,
    estimate,
    estimate_units,
    independent_difference,
    interval_of_units,
    is_share,
    paired_difference,
)
from ingot.evals.scores.subset import fit_of
from ingot.evals.suites.alpaca import length_control
from ingot.evals.suites.alpaca.length_control import FOLDS, STRENGTHS, choose, design, length_controlled


def test_two_points_correlate_and_small_spreads_count() -> None:
    assert pearson([1.0, 2.0], [5.0, 3.0]) == -1.0
    assert pearson([0.1, 0.2, 0.3], [0.1, 0.3, 0.2]) == pytest.approx(0.5)  # sums of squares far below 1
    assert pearson([1.0, 1.0], [1.0, 2.0]) is None


def test_models_in_pairs() -> None:
    small, large = {"a": 1.0, "b": 2.0, "c": 3.0, "only here": 9.0}, {"a": 1.0, "b": 5.0, "c": 4.0}
    assert decision_accuracy(small, large) == pytest.approx(2 / 3)
    assert decision_accuracy({"a": 1.0}, {"a": 1.0}) is None


def test_a_limit_takes_the_parts_in_turn() -> None:
    rows = [(str(number), {"part": part}) for number, part in enumerate("aaabbc")]
    assert [place for place, _ in in_turn(rows, lambda row: row["part"])] == ["0", "3", "5", "1", "4", "2"]


def test_a_test_against_another_value_is_scipys() -> None:
    values = [1.0, 2.0, 4.0, 4.5]
    found = estimate_units({str(number): value for number, value in enumerate(values)})
    assert found.p_value(1.5) == pytest.approx(stats.ttest_1samp(values, 1.5).pvalue)
    assert Estimate(2.0, 1.0, 10).interval() == pytest.approx(stats.t.interval(0.95, 9, 2.0, 1.0))


def test_one_cluster_has_no_error_and_no_freedom() -> None:
    found = estimate_units({"a": 1.0, "b": 0.0}, {"a": "one", "b": "one"})
    assert (found.value, found.standard_error, found.freedom) == (0.5, math.inf, 0)


def test_few_are_fewer_than_a_hundred() -> None:
    units = {str(number): float(number % 2) for number in range(FEW)}
    assert FEW == 100 and not is_share(units)
    assert interval_of_units(units) == pytest.approx(estimate_units(units).interval())
    del units["0"]
    theirs = stats.binomtest(50, 99).proportion_ci(0.95, "wilson")
    assert interval_of_units(units) == pytest.approx((theirs.low, theirs.high))


def test_clusters_of_either_side_hold_for_both() -> None:
    """Four questions of two topics: their differences within a topic are the same."""
    before = metric_of_units("m", dict.fromkeys("abcd", 0.5), "m")
    after = metric_of_units("m", {"a": 1.0, "b": 1.0, "c": 0.6, "d": 0.6}, "m")
    clusters = {"a": "x", "b": "x", "c": "y", "d": "y"}
    wanted = paired_difference(after.units, before.units, clusters)
    alone = paired_difference(after.units, before.units)
    assert wanted.standard_error != pytest.approx(alone.standard_error)
    for first, second in ((before, replace(after, clusters=clusters)), (replace(before, clusters=clusters), after)):
        assert second.minus(first) == wanted
        assert second.p_value(first) == wanted.p_value()


@pytest.mark.parametrize(("shared", "paired"), [(1, False), (4, False), (5, True), (6, True)])
def test_half_of_the_smaller_set_is_enough_to_pair(shared: int, paired: bool) -> None:
    assert ENOUGH_SHARED == 0.5
    before = metric_of_units("m", {str(number): number / 20 for number in range(20)}, "m")
    units = {str(number): number / 10 for number in range(shared)}
    after = metric_of_units("m", units | {f"other {number}": 0.3 for number in range(10 - shared)}, "m")
    change = change_between(before, after)
    assert change.shared == (shared if paired else 0)


def test_one_shared_question_is_no_pair_however_small_the_sets() -> None:
    one, two = metric_of_units("m", {"a": 1.0}, "m"), metric_of_units("m", {"a": 0.0, "b": 1.0}, "m")
    assert change_between(two, one).shared == 0


@pytest.mark.parametrize(("higher", "better"), [(True, True), (False, False)])
def test_which_direction_is_better_and_what_was_gained(higher: bool, better: bool) -> None:
    before = replace(metric_of_units("m", {"a": 0.0, "b": 0.0, "c": 1.0}, "m"), higher_is_better=higher)
    after = replace(metric_of_units("m", {"a": 1.0, "b": 1.0, "c": 0.0}, "m"), higher_is_better=higher)
    change = change_between(before, after)
    assert change.better is better
    assert (change.gained, change.lost) == ((("a", "b"), ("c",)) if higher else (("c",), ("a", "b")))
    assert change_between(before, before).better is None
    whole = replace(metric_of_units("m", {"a": 1.0, "b": 1.0}, "m"), higher_is_better=higher)
    nothing = replace(metric_of_units("m", {"a": 0.0, "b": 0.0}, "m"), higher_is_better=higher)
    assert change_between(nothing, whole).difference.value == 1.0 and change_between(nothing, whole).better is better


def test_names_take_as_much_of_the_path_as_they_need() -> None:
    folders = [Path("/runs/a/x/scores"), Path("/runs/b/x/scores")]
    assert distinct_names(folders) == ["a/x", "b/x"]
    assert distinct_names([Path("/one/a/x"), Path("/two/a/x")]) == ["one/a/x", "two/a/x"]
    assert distinct_names([Path("/scores"), Path("/b")]) == ["scores", "b"]


@pytest.mark.parametrize(
    "samples",
    [
        {"a": [1.0], "b": [0.0]},
        {"a": [1.0, 0.0]},
        {"a": [1.0, 0.0], "b": [1.0]},
        {"a": [1.0, 0.0], "b": [1.0, 0.0, 1.0]},
        {},
    ],
)
def test_noise_needs_two_questions_with_two_samples_each(samples: dict[str, list[float]]) -> None:
    with pytest.raises(ValueError, match="needs two questions or more"):
        noise_of_samples(samples)


def test_lengths_of_one_and_of_two_comparisons() -> None:
    """tanh of the difference in standard deviations; one comparison has none, and equal lengths have no difference."""
    assert design([10], [30]).tolist() == [[1.0, 0.0]]
    found = design([10, 10], [30, 50])
    assert found[:, 1] == pytest.approx(np.tanh(np.array([20.0, 40.0]) / np.std([20.0, 40.0], ddof=1)))
    assert design([10, 10], [30, 30])[:, 1].tolist() == [0.0, 0.0]


def test_the_strengths_and_from_how_many_comparisons_on_one_is_chosen() -> None:
    assert pytest.approx([10 ** (-4 + 8 * place / 9) for place in range(10)]) == STRENGTHS
    generator = np.random.default_rng(1)
    wanted = generator.integers(0, 2, 2 * FOLDS).astype(float)
    features = np.stack([np.ones(2 * FOLDS), np.tanh(generator.normal(size=2 * FOLDS))], axis=1)
    assert choose(features[:-1], wanted[:-1]) == STRENGTHS[-1]
    assert choose(features, wanted) < STRENGTHS[-1], "no length explains a coin"


def test_the_win_rate_is_that_at_equal_lengths() -> None:
    """Length decides nothing: the share of wins. It is theta alone, not that of the length's weight."""
    lengths, baseline = [100, 200] * 30, [200, 100] * 30
    preferences = [1.0, 1.0, 1.0, 1.0, 0.0, 0.0] * 10
    assert length_controlled(preferences, lengths, baseline).value == pytest.approx(2 / 3, abs=0.01)


def test_without_enough_steps_the_fit_is_the_best_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    features, wanted = (
        np.stack([np.ones(40), generator.normal(size=40)], axis=1),
        generator.integers(0, 2, 40).astype(np.float64),
    )
    whole = length_control.fit(features, wanted, 10.0)
    monkeypatch.setattr(length_control, "STEPS", 1)
    once = length_control.fit(features, wanted, 10.0)
    assert 0 < np.abs(once - whole).max() < np.abs(whole).max() / 10


def test_a_fraction_that_does_not_converge_is_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributions, "TERMS", 2)
    with pytest.raises(ArithmeticError, match="does not converge"):
        two_sided(1.0, 5.0)


def test_one_question_says_nothing_about_a_difference() -> None:
    found = independent_difference(estimate([1.0]), estimate([0.0, 1.0, 1.0]))
    assert (found.standard_error, found.freedom, found.p_value()) == (math.inf, 0, 1.0)
    assert found.interval() == (-math.inf, math.inf)


def test_a_subset_that_never_changes_has_no_correlation() -> None:
    answers = np.array([[0.0, 1.0, 0.0], [0.0, 1.0, 1.0], [0.0, 1.0, 0.5]])
    assert fit_of(np.zeros(3), answers).correlation is None
    assert fit_of(np.array([0.1, 0.9, 0.4]), np.ones((3, 3))).correlation is None
    assert fit_of(answers[:, 2], answers).correlation == pytest.approx(1.0)
