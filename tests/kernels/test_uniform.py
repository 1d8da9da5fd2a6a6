"""The random numbers against the published SplitMix64, plain integer arithmetic, and scipy's chi-squared test."""

from __future__ import annotations

import pytest
import torch
from scipy.stats import chisquare

from ingot.kernels.head.uniform import GOLDEN, stream, uniform

MASK = (1 << 64) - 1


def splitmix64(state: int) -> int:
    """The output function in plain integers."""
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & MASK
    return state ^ (state >> 31)


def test_the_published_numbers_of_splitmix64() -> None:
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert [splitmix64((1234567 + (i + 1) * GOLDEN) & MASK) for i in range(4)] == published
    assert stream(1234567) & MASK == published[0]


@pytest.mark.parametrize("seed", [0, 1, -1, 1234567, 2**63, 2**64 - 1, 10**30])
def test_uniform_numbers_equal_plain_integer_arithmetic(seed: int) -> None:
    steps = torch.tensor([*range(49), 2**31])
    start = splitmix64((seed + GOLDEN) & MASK)
    expected = [(splitmix64((start + (step + 1) * GOLDEN) & MASK) >> 12) / 2**52 for step in steps.tolist()]
    assert uniform(torch.full((50,), stream(seed)), steps).tolist() == expected


def test_neighbouring_seeds_and_steps_are_independent() -> None:
    streams = torch.tensor([stream(seed) for seed in range(20_001)])
    zeros = torch.zeros(20_001, dtype=torch.int64)
    at_zero, at_one = uniform(streams, zeros), uniform(streams, zeros + 1)
    for first, second in ((at_zero[:-1], at_zero[1:]), (at_zero, at_one)):
        pairs = (first * 8).long() * 8 + (second * 8).long()
        assert chisquare(torch.bincount(pairs, minlength=64).numpy()).pvalue > 0.01
