"""Windows on the device against numpy, and against OLMo's rule written out over plain lists."""

from __future__ import annotations

import json
from statistics import NormalDist

import numpy
import pytest
import torch

from ingot.train.guards.config import GuardsConfig
from ingot.train.guards.spikes import Spikes
from ingot.train.guards.windows import Score, Windows

CPU = torch.device("cpu")
SIZE = 16


def values(count: int, seed: int = 0) -> list[float]:
    """Falling, noisy, now and then far off."""
    rng = numpy.random.default_rng(seed)
    noise = 3 * numpy.exp(-numpy.arange(count) / 40) + 0.1 * rng.standard_normal(count)
    noise[rng.integers(count, size=count // 12)] += 5
    return [float(numpy.float32(each)) for each in noise]


def reference(before: list[float], value: float, score: Score) -> float:
    if len(before) < SIZE // 2:
        return 0.0
    last = numpy.array(before[-SIZE:])
    if score == "robust":
        level = numpy.median(last)
        deviation = numpy.median(abs(last - level)) / NormalDist().inv_cdf(0.75)
    else:
        level, deviation = last.mean(), last.std(ddof=1)
    return float((value - level) / max(deviation, 1e-3 * abs(level)))


def one(size: int = SIZE, score: Score = "robust") -> Windows:
    """The window of one number."""
    return Windows(["loss"], size, score, CPU)


@pytest.mark.parametrize("score", ["robust", "standard"])
def test_deviations_are_those_of_the_last_values(score: Score) -> None:
    """Of three numbers at once: one is not finite in every third step, so that their windows are filled to different places."""
    windows = Windows(["a", "b", "c"], SIZE, score, CPU)
    seen: list[list[float]] = [[], [], []]
    for step, row in enumerate(zip(values(100), values(100, 1), values(100, 2), strict=True)):
        found = windows.deviations(torch.tensor(row)).tolist()
        expected = [reference(before, value, score) for before, value in zip(seen, row, strict=True)]
        assert found == pytest.approx(expected, rel=2e-4, abs=1e-3)
        told = list(row)
        if step % 3 == 2:
            told[1] = torch.nan if step % 2 else torch.inf
        windows.add(torch.tensor(told))
        for before, value in zip(seen, told, strict=True):
            before.extend([value] if numpy.isfinite(value) else [])


def test_what_is_not_finite_does_not_enter() -> None:
    window = one()
    for value in [1.0, torch.nan, 2.0, torch.inf, 3.0] * 3:
        window.add(torch.tensor([value]))
    assert window.state() == {"loss": {"count": 9, "values": [1.0, 2.0, 3.0] * 3}}
    assert float(window.deviations(torch.tensor([2.0]))) == 0.0


def test_values_that_hardly_vary_are_no_spikes() -> None:
    window = one()
    for _ in range(SIZE):
        window.add(torch.tensor([2.0]))
    assert float(window.deviations(torch.tensor([2.01]))) == pytest.approx(5.0, rel=1e-3), (
        "a thousandth of the level is the unit"
    )


def test_nothing_is_a_spike_against_zeros() -> None:
    window = one()
    for _ in range(SIZE):
        window.add(torch.tensor([0.0]))
    assert window.deviations(torch.tensor([1.0])).tolist() == window.deviations(torch.tensor([0.0])).tolist() == [0.0]


@pytest.mark.parametrize("score", ["robust", "standard"])
def test_a_window_goes_on_from_json_exactly(score: Score) -> None:
    sequence = values(60)
    whole, parts = one(score=score), one(score=score)
    for number, value in enumerate(sequence):
        if number in (5, 41):
            stored = json.dumps(parts.state())
            parts = one(score=score)
            parts.restore(json.loads(stored))
        tensor = torch.tensor([value])
        assert torch.equal(whole.deviations(tensor), parts.deviations(tensor))
        whole.add(tensor)
        parts.add(tensor)


@pytest.mark.parametrize("seen", [5, 16, 21])
@pytest.mark.parametrize("size", [8, 16, 32])
def test_a_window_of_another_size_goes_on_with_the_newest_values(seen: int, size: int) -> None:
    """A run may go on with another `guards.window`: it then knows what a list of the last values would know."""
    before, after = one(16), one(size)
    for value in range(seen):
        before.add(torch.tensor([float(value)]))
    after.restore(before.state())
    for late in (100.0, 101.0):
        after.add(torch.tensor([late]))
    known = after.values_KW[~after.values_KW.isnan()]
    assert sorted(known.tolist()) == [*map(float, range(seen)), 100.0, 101.0][-min(size, min(seen, 16) + 2) :]


def test_skipping_is_the_rule_of_olmo() -> None:
    """Both within mean + 6 standard deviations of the last 128, from the 64th on; every value enters the window."""
    rng = numpy.random.default_rng(3)
    losses, norms = (rng.normal(2, 0.1, 400).astype("float32") for _ in range(2))
    losses[[40, 200, 330]] += 2
    norms[[150, 201]] += 2
    spikes = Spikes(GuardsConfig(spike="skip", spike_score="standard"), CPU)
    skipped = []
    for step, (loss, norm) in enumerate(zip(losses, norms, strict=True)):
        taken, _ = spikes.admit(torch.tensor(loss), torch.tensor(norm))
        pairs = ((loss, losses[max(0, step - 128) : step]), (norm, norms[max(0, step - 128) : step]))
        expected = step < 64 or all(
            value <= before.astype("float64").mean() + 6 * before.astype("float64").std(ddof=1)
            for value, before in pairs
        )
        assert bool(taken) == expected, step
        skipped += [] if taken else [step]
    assert skipped == [150, 200, 201, 330], "the one at step 40 comes before the rule is on"


@pytest.mark.parametrize("spike", ["off", "warn", "clip", "rewind", "skip"])
def test_only_skip_refuses_a_spike_and_all_refuse_nan(spike: str) -> None:
    spikes = Spikes(GuardsConfig.model_validate({"spike": spike, "window": 8}), CPU)
    for _ in range(8):
        assert spikes.admit(torch.tensor(1.0), torch.tensor(1.0))[0] == 1
    assert spikes.admit(torch.tensor(9.0), torch.tensor(1.0))[0] == (spike != "skip")
    assert spikes.admit(torch.tensor(torch.nan), torch.tensor(1.0))[0] == 0
    assert spikes.admit(torch.tensor(1.0), torch.tensor(torch.inf))[0] == 0


@pytest.mark.parametrize("spike", ["skip", "clip"])
def test_steps_without_a_gradient_do_not_count(spike: str) -> None:
    """RL with few rewards: nine steps of ten have nothing to learn, and the tenth is not a spike; one of 50 is."""
    spikes = Spikes(GuardsConfig.model_validate({"spike": spike, "window": 16}), CPU)
    found = []
    for step in range(200):
        norm = 0.0 if step % 10 else 0.3 + 0.01 * (step % 30)
        taken, above = spikes.admit(torch.tensor(norm), torch.tensor(norm))
        found.append((float(taken), float(spikes.clip(1.0)), max(map(float, above.values())) < 6))
    assert found == [(1.0, 1.0, True)] * 200
    taken, above = spikes.admit(torch.tensor(0.3), torch.tensor(50.0))
    assert float(above["gradient_norm_deviations"]) > 100 and float(taken) == (spike != "skip")


def test_a_spike_tightens_clipping_for_a_while() -> None:
    """Window 16: two more steps are clipped to the median of the norms, never to more than the limit."""
    spikes = Spikes(GuardsConfig(spike="clip", window=16), CPU)
    limits = []
    for step in range(20):
        norm = torch.tensor(50.0 if step == 12 else 0.3)
        spikes.admit(torch.tensor(2.0), norm)
        limits.append(round(float(spikes.clip(1.0)), 4))
    assert limits == [1.0] * 12 + [0.3] * 2 + [1.0] * 6
    spikes.admit(torch.tensor(200.0), torch.tensor(0.3))
    assert float(spikes.clip(0.1)) == pytest.approx(0.1)
