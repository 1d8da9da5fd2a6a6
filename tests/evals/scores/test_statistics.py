"""Statistics against scipy, enumeration, the standard library and simulation; clusters against numbers of statsmodels."""

from __future__ import annotations

import itertools
import math
import random
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from ingot.evals.scores.distributions import critical, fair_coin, two_sided
from ingot.evals.scores.power import Noise, noise_of_samples, questions_needed, smallest_difference
from ingot.evals.scores.statistics import (
    Estimate,
    estimate,
    estimate_units,
    holm,
    independent_difference,
    interval_of_units,
    paired_difference,
    paired_p_value,
    pass_at_k,
    pass_hat_k,
    wilson,
)


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=50))
def test_mean_and_standard_error(values: list[float]) -> None:
    found = estimate(values)
    assert found.value == pytest.approx(statistics.fmean(values), abs=1e-6)
    assert found.standard_error == pytest.approx(statistics.stdev(values) / math.sqrt(len(values)), abs=1e-6)


def test_one_value_has_no_known_error_and_none_is_refused() -> None:
    assert estimate([3.0]) == Estimate(3.0, math.inf, 1)
    with pytest.raises(ValueError, match="no values"):
        estimate([])


def test_clustered_error_is_the_real_scatter_and_the_naive_one_is_not() -> None:
    """Samples of a task share its difficulty. The scatter of the mean over repeated draws is what an error must say."""
    generator = np.random.default_rng(0)
    tasks, samples, repeats = 60, 8, 2000
    chances = generator.beta(0.4, 0.4, size=(repeats, tasks, 1))
    right = (generator.random((repeats, tasks, samples)) < chances).astype(float)
    scatter = right.mean(axis=(1, 2)).std()
    samples_of = {f"{task}-{sample}": str(task) for task in range(tasks) for sample in range(samples)}
    found = [
        estimate_units(dict(zip(samples_of, map(float, right[repeat].ravel()), strict=True)), samples_of)
        for repeat in range(0, repeats, 20)
    ]
    reported = statistics.fmean(each.standard_error for each in found)
    of_means = estimate(right[0].mean(axis=1).tolist())  # of K samples each: the same thing
    assert found[0].standard_error == pytest.approx(of_means.standard_error) and found[0].freedom == tasks - 1
    naive = right[0].std() / math.sqrt(tasks * samples)
    assert reported == pytest.approx(scatter, rel=0.05)
    assert naive < 0.6 * scatter


def test_paired_difference_leaves_out_what_the_tasks_share() -> None:
    generator = np.random.default_rng(1)
    hard = generator.random(200)
    before = {f"task-{index}": float(value) for index, value in enumerate(hard)}
    after = {task: value + 0.1 + float(generator.normal(0, 0.01)) for task, value in before.items()}
    paired = paired_difference(after, before)
    by_hand = [after[task] - before[task] for task in before]
    assert paired.value == pytest.approx(statistics.fmean(by_hand))
    assert paired.standard_error == pytest.approx(statistics.stdev(by_hand) / math.sqrt(200))
    unpaired = independent_difference(estimate(list(after.values())), estimate(list(before.values())))
    assert unpaired.value == pytest.approx(paired.value)
    assert unpaired.standard_error > 10 * paired.standard_error
    with pytest.raises(ValueError, match="same tasks"):
        paired_difference(after, {**before, "more": 1.0})


def test_independent_variances_add() -> None:
    found = independent_difference(Estimate(5, 3, 10), Estimate(1, 4, 20))
    assert (found.value, found.standard_error, found.count) == (4, 5, 10)


@pytest.mark.parametrize("samples", range(1, 7))
def test_pass_at_k_and_pass_hat_k_against_enumeration(samples: int) -> None:
    for right in range(samples + 1):
        marks = [1] * right + [0] * (samples - right)
        for k in range(1, samples + 1):
            draws = list(itertools.combinations(marks, k))
            assert pass_at_k(samples, right, k) == pytest.approx(sum(any(draw) for draw in draws) / len(draws))
            assert pass_hat_k(samples, right, k) == pytest.approx(sum(all(draw) for draw in draws) / len(draws))


def test_pass_at_k_is_unbiased() -> None:
    """The mean over all outcomes of n samples at chance p is 1 - (1-p)^k exactly; that of 1 - (1 - c/n)^k is not."""
    chance, samples, k = 0.3, 6, 3
    weights = [math.comb(samples, c) * chance**c * (1 - chance) ** (samples - c) for c in range(samples + 1)]
    mean_at = sum(weight * pass_at_k(samples, c, k) for c, weight in enumerate(weights))
    mean_hat = sum(weight * pass_hat_k(samples, c, k) for c, weight in enumerate(weights))
    assert mean_at == pytest.approx(1 - (1 - chance) ** k)
    assert mean_hat == pytest.approx(chance**k)


@pytest.mark.parametrize("arguments", [(4, 5, 1), (4, -1, 1), (4, 2, 5), (4, 2, 0)])
def test_impossible_counts_are_refused(arguments: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="needs 0 <= correct"):
        pass_at_k(*arguments)


@pytest.mark.parametrize("degrees", [1, 2, 3.7, 11, 99, 657, 7102, math.inf])
def test_student_against_scipy(degrees: float) -> None:
    for statistic in (0.0, 0.3, 1.0, 1.96, 4.5, 12.0, 40.0):
        assert two_sided(statistic, degrees) == pytest.approx(2 * stats.t.sf(statistic, degrees), rel=1e-9)
        assert two_sided(-statistic, degrees) == two_sided(statistic, degrees)
    for confidence in (0.5, 0.9, 0.95, 0.999):
        assert critical(confidence, degrees) == pytest.approx(stats.t.ppf((1 + confidence) / 2, degrees), rel=1e-9)


def test_fair_coin_against_scipy() -> None:
    for tosses in (1, 2, 7, 40, 99):
        for heads in range(tosses + 1):
            assert fair_coin(heads, tosses) == pytest.approx(stats.binomtest(heads, tosses).pvalue, rel=1e-9)
    assert fair_coin(0, 0) == 1.0


def test_wilson_against_scipy() -> None:
    for count in (1, 5, 30, 99):
        for right in range(count + 1):
            theirs = stats.binomtest(right, count).proportion_ci(0.95, method="wilson")
            assert wilson(right, count) == pytest.approx((theirs.low, theirs.high), abs=1e-12)


def test_intervals_are_wilsons_for_few_shares_and_students_otherwise() -> None:
    few = {str(number): float(number < 2) for number in range(20)}
    assert interval_of_units(few) == wilson(2, 20)
    graded = {**few, "0": 0.5}
    theirs = stats.t.interval(0.95, 19, np.mean(list(graded.values())), stats.sem(list(graded.values())))
    assert interval_of_units(graded) == pytest.approx(theirs, rel=1e-9)
    passages = {unit: str(int(unit) // 4) for unit in few}
    low, high = interval_of_units(few, passages)  # in clusters: not Wilson's
    assert high - low > 2 * stats.t.ppf(0.975, 4) * 0.99 * estimate_units(few, passages).standard_error


# statsmodels 0.15.0, OLS(scores, ones).fit(cov_type="cluster", cov_kwds={"groups": passages}, use_t=True) of these scores:
# its standard error and interval are the numbers in the test; inspect-ai 0.3.285, stderr(cluster=…), has the same error
SCORES = [1, 1, 1, 0, 0, 1, 0, 0, 0, 0, 1, 1, 0.5, 1, 0, 1, 0.25, 1]
PASSAGES = "aaabbbccccddeeffgh"


def test_clustered_errors_against_statsmodels() -> None:
    units = {str(number): float(value) for number, value in enumerate(SCORES)}
    groups = {str(number): passage for number, passage in enumerate(PASSAGES)}
    found = estimate_units(units, groups)
    assert found.value == pytest.approx(0.541666666667) and (found.count, found.freedom) == (18, 7)
    assert found.standard_error == pytest.approx(0.17101900908882514, rel=1e-12)
    assert found.interval() == pytest.approx((0.13727097, 0.94606236), rel=1e-7)
    alone = estimate_units(units, {unit: unit for unit in units})
    assert alone.standard_error == pytest.approx(estimate(list(units.values())).standard_error) and alone.freedom == 17
    assert estimate_units(units, dict.fromkeys(units, "one")).standard_error == math.inf
    some = {unit: groups[unit] for unit in list(units)[:16]}  # g and h have one unit each: alone without being named
    assert estimate_units(units, some) == found


def test_paired_tests_against_scipy() -> None:
    generator = random.Random(3)
    before = {str(number): generator.random() for number in range(120)}
    after = {unit: value + generator.gauss(0.02, 0.1) for unit, value in before.items()}
    theirs = stats.ttest_rel([after[unit] for unit in before], list(before.values()))
    assert paired_p_value(after, before) == pytest.approx(theirs.pvalue, rel=1e-9)
    assert paired_difference(after, before).interval() == pytest.approx(tuple(theirs.confidence_interval()), rel=1e-9)
    right = {str(number): float(number % 3 == 0) for number in range(60)}
    better = {unit: 1.0 if int(unit) % 7 == 1 else value for unit, value in right.items()} | {"0": 0.0}
    gained = sum(better[unit] > right[unit] for unit in right)
    assert gained == 6
    assert paired_p_value(better, right) == pytest.approx(stats.binomtest(gained, gained + 1).pvalue)
    assert paired_p_value(right, right) == 1.0
    many = {str(number): float(number % 3 == 0) for number in range(150)}
    some = {unit: float(int(unit) % 5 == 0) for unit in many}
    differences = [some[unit] - many[unit] for unit in many]
    assert paired_p_value(some, many) == pytest.approx(stats.ttest_1samp(differences, 0).pvalue, rel=1e-9)


def test_unpaired_tests_against_scipy() -> None:
    generator = random.Random(4)
    a, b = [generator.gauss(0, 1) for _ in range(30)], [generator.gauss(0.5, 3) for _ in range(55)]
    theirs = stats.ttest_ind(a, b, equal_var=False)
    found = independent_difference(estimate(a), estimate(b))
    assert (found.freedom, found.p_value()) == pytest.approx((theirs.df, theirs.pvalue), rel=1e-9)
    assert found.interval() == pytest.approx(tuple(theirs.confidence_interval()), rel=1e-9)
    assert independent_difference(estimate([1.0]), estimate(b)).p_value() == 1.0


def test_what_has_no_scatter_or_no_error() -> None:
    assert estimate([3.0]).interval() == (-math.inf, math.inf) and estimate([3.0]).p_value() == 1.0
    assert estimate([1.0, 1.0]).interval() == (1.0, 1.0) and estimate([1.0, 1.0]).p_value() == 0.0


def test_holm() -> None:
    """The example of Wright (1992), Biometrics 48: adjusted p-values of a, b, c, d as R's p.adjust prints them."""
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005}) == pytest.approx(
        {"a": 0.03, "b": 0.06, "c": 0.06, "d": 0.02}
    )
    assert holm({"a": 0.7, "b": 0.9}) == {"a": 1.0, "b": 1.0}


def test_noise_of_samples_is_the_analysis_of_variance() -> None:
    """scipy's F is the ratio of mean squares: K * variance of the means over `within`."""
    generator = random.Random(5)
    chances = [generator.random() for _ in range(40)]
    samples = {str(i): [float(generator.random() < chance) for _ in range(6)] for i, chance in enumerate(chances)}
    noise = noise_of_samples(samples)
    statistic = stats.f_oneway(*samples.values()).statistic
    assert (6 * noise.between + noise.within) / noise.within == pytest.approx(statistic)
    means = estimate([statistics.fmean(values) for values in samples.values()])
    assert noise.standard_error() == pytest.approx(means.standard_error)
    assert noise.standard_error(samples=10**9) == pytest.approx(math.sqrt(noise.between / 40))
    with pytest.raises(ValueError, match="equally many"):
        noise_of_samples({"a": [1, 0], "b": [1]})


def test_questions_needed_have_the_power_that_was_asked_for() -> None:
    """About a thousand questions for three points at 80 % power; and that many find the difference four times in five."""
    assert questions_needed(0.03, math.sqrt(1 / 9)) == 969  # Miller, section 5: two models, omega^2 = 1/9
    needed = questions_needed(0.1, 0.3, (0.4, 0.3), (2, 1))
    generator = np.random.default_rng(6)
    true = generator.normal(0.1, 0.3, (4000, needed))
    seen = true + generator.normal(0, math.sqrt(0.16 / 2 + 0.09), (4000, needed))
    found = np.abs(seen.mean(1) / (seen.std(1, ddof=1) / math.sqrt(needed))) > 1.96
    assert found.mean() == pytest.approx(0.8, abs=0.025)
    error = Noise(0.3**2 + 0.16 / 2 + 0.09, 0, needed, 1).standard_error()
    assert smallest_difference(error) == pytest.approx(0.1, rel=0.01)
