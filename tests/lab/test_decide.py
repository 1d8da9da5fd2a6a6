"""Verdicts: their numbers against scipy's, and on simulated ablations whose truth is known."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
import scipy.stats

from ingot.evals.scores.power import difference_shown
from ingot.evals.scores.signal import Signal
from ingot.lab.decide import ArmState, Decisions, Difference, MetricValues, decide

EXACT = 1e-10
SEEDS = (1, 2, 3, 4)


def by_seed(values: Sequence[float]) -> dict[int, float]:
    return dict(enumerate(map(float, values), start=1))


def metric(arms: Mapping[str, Sequence[float]], **options: object) -> MetricValues:
    return MetricValues("loss", "Loss", False, {name: by_seed(row) for name, row in arms.items()}, **options)  # type: ignore[arg-type]


def states(arms: Sequence[str], seeds: int = 4, paired: bool = True) -> list[ArmState]:
    return [ArmState(name, paired, tuple(range(1, seeds + 1))) for name in arms]


def decided(arms: Mapping[str, Sequence[float]], *, paired: bool = True, worth: float = 0.0) -> Decisions:
    seeds = max(map(len, arms.values()))
    return decide([metric(arms)], states(list(arms), seeds, paired), worth=worth)


def only(found: Decisions, arm: int = 0) -> Difference:
    return found.decisions[arm].differences[0]


def table(generator: np.random.Generator, gains: Sequence[float], seeds: int, noise: float) -> dict[str, list[float]]:
    """A loss of 2: what a seed does to all arms alike, and what is each run's own. The baseline comes first."""
    shared = 0.02 * generator.standard_normal(seeds)
    return {
        name: (2 * (1 - gain) + shared + noise * generator.standard_normal(seeds)).tolist()
        for name, gain in zip(["baseline", *"abcdefgh"], [0.0, *gains], strict=False)
    }


@pytest.mark.parametrize("count", [2, 3, 10])
def test_the_numbers_are_scipys(count: int) -> None:
    arms = table(np.random.default_rng(count), [0.01, 0.0, -0.02], count, 0.01)
    base = np.array(arms["baseline"])
    for paired in (True, False):
        found = decided(arms, paired=paired)
        raw = []
        for number, name in enumerate("abc"):
            own, one = np.array(arms[name]), only(found, number)
            test = scipy.stats.ttest_rel(own, base) if paired else scipy.stats.ttest_ind(own, base, equal_var=False)
            interval = test.confidence_interval(0.95)
            assert one.paired == paired
            assert one.p_value == pytest.approx(test.pvalue, rel=EXACT)
            assert one.estimate.interval() == pytest.approx((interval.low, interval.high), rel=EXACT, abs=1e-12)
            assert one.gain == pytest.approx((base.mean() - own.mean()) / base.mean(), rel=EXACT)
            raw.append(test.pvalue)
        order = np.argsort(raw)
        holm = np.minimum(1, np.maximum.accumulate(np.array(raw)[order] * np.arange(3, 0, -1)))  # Holm 1979, by ranks
        assert [only(found, int(at)).corrected for at in order] == pytest.approx(list(holm), rel=EXACT)


def test_equal_recipes_are_called_different_as_rarely_as_is_said() -> None:
    generator = np.random.default_rng(3)
    for paired in (True, False):
        alarms = 0
        for _ in range(200):
            if paired:
                arms = table(generator, [0, 0, 0], 3, 0.01)
            else:
                arms = {name: (2 + 0.02 * generator.standard_normal(3)).tolist() for name in ("baseline", *"abc")}
            found = decided(arms, paired=paired)
            alarms += any(decision.kind != "cannot tell" for decision in found.decisions)
        assert alarms <= scipy.stats.binom.ppf(0.9999, 200, 0.05)  # Holm's level holds for the whole table


def test_a_planted_gain_of_one_percent_is_found_with_the_stated_power() -> None:
    generator = np.random.default_rng(4)
    gain, seeds, ablations = 0.01, 4, 200
    # the noise at which four paired seeds show 1 % of a loss of 2 with a power of 0.8: that is the statement under test
    noise = 0.02 / difference_shown(math.sqrt(2), seeds, paired=True)
    kinds = [decided(table(generator, [gain], seeds, noise)).decisions[0].kind for _ in range(ablations)]
    low, high = scipy.stats.binom.interval(0.9999, ablations, 0.8)
    assert low <= kinds.count("adopt") <= high
    assert kinds.count("reject") == 0


def test_pairing_finds_what_is_hidden_between_seeds() -> None:
    arms = table(np.random.default_rng(5), [0.01], 4, 0.001)
    assert decided(arms).decisions[0].kind == "adopt"
    other = decided(arms, paired=False)
    assert other.decisions[0].kind == "cannot tell" and not only(other).paired
    assert "seeds of each would show a difference of this size" in other.decisions[0].why


def test_seeds_that_would_tell() -> None:
    found = only(decided({"baseline": [2.0, 2.1, 1.9], "a": [1.99, 2.05, 1.93]}))
    deviation = np.std([-0.01, -0.05, 0.03], ddof=1)
    needed = found.more_seeds
    assert needed is not None

    def power(count: int) -> float:
        limit = scipy.stats.t.isf(0.025, count - 1)
        shift = 0.01 / deviation * math.sqrt(count)
        return float(scipy.stats.nct.sf(limit, count - 1, shift) + scipy.stats.nct.cdf(-limit, count - 1, shift))

    assert power(needed) >= 0.8 > power(needed - 1)


def test_what_is_worse_is_rejected_and_what_is_small_if_it_is_shown_to_be() -> None:
    worse = decided({"baseline": [2.0, 2.1, 1.9], "a": [2.2, 2.301, 2.1]}).decisions[0]
    assert (worse.kind, worse.why) == ("reject", "worse at loss")
    arms = {"baseline": [2.0, 2.1, 1.9], "a": [1.998, 2.0979, 1.8981]}
    assert decided(arms).decisions[0].kind == "adopt"
    small = decided(arms, worth=0.01).decisions[0]
    assert small.kind == "reject" and "1.00% is worth having" in small.why
    assert decided(arms, worth=0.0005).decisions[0].kind == "adopt"


def test_failed_missing_and_pruned_runs_are_never_adopted() -> None:
    values = metric({"baseline": [2.0, 2.1, 1.9], "a": [1.9, 2.001]})
    base = ArmState("baseline", True, (1, 2, 3))
    for arm, kind, why in (
        (ArmState("a", True, (1, 2)), "adopt", "better at loss"),
        (ArmState("a", True, (1, 2, 3), failed=(3,)), "cannot tell", "seed 3 failed"),
        (ArmState("a", True, (1, 2, 3)), "cannot tell", "not all runs are there"),
        (ArmState("a", True, (1, 2, 3), pruned=(3,)), "pruned", "not tested"),
    ):
        found = decide([values], [base, arm])
        assert found.decisions[0].kind == kind and why in found.decisions[0].why
        assert found.tests == (kind != "pruned")


def test_one_seed_tells_nothing() -> None:
    found = decided({"baseline": [2.0], "a": [1.0]})
    assert (found.decisions[0].kind, found.tests) == ("cannot tell", 0)
    assert found.noise[0].deviation is None


def test_a_blind_metric_is_not_tested_and_costs_the_others_nothing() -> None:
    arms = {"baseline": [2.0, 2.1, 1.9], "a": [1.9, 2.001, 1.8]}
    blind = metric(arms, signal=Signal("loss", "blind", ("at chance",)))
    assert decide([blind], states(list(arms), 3)).decisions[0].why == "loss says nothing at this size"
    good = MetricValues("bits", "Bits", False, metric(arms).arms)
    both = decide([blind, good], states(list(arms), 3))
    assert both.tests == 1 and both.decisions[0].why == "better at bits"


def test_a_trade_is_left_to_you() -> None:
    loss = metric({"baseline": [2.0, 2.1, 1.9], "a": [1.9, 2.001, 1.8]})
    accuracy = MetricValues(
        "right", "Right", True, {"baseline": by_seed([0.5, 0.6, 0.7]), "a": by_seed([0.4, 0.501, 0.6])}
    )
    found = decide([loss, accuracy], states(["baseline", "a"], 3)).decisions[0]
    assert found.kind == "cannot tell" and "better at loss, worse at right" in found.why


def test_the_noise_of_the_baseline() -> None:
    row = [2.0, 2.1, 1.9, 2.04]
    [noise] = decided({"baseline": row, "a": row}).noise
    assert noise.deviation == pytest.approx(np.std(row, ddof=1))
    assert noise.share == pytest.approx(np.std(row, ddof=1) / np.mean(row))
