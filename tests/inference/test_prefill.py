"""Passes over prompts cover every prompt once, waste little, and stay small."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ingot.inference.prefill import (
    PASS_TOKENS,
    SHORTEST_BUCKET,
    TOKENS_PER_PASS,
    bucket_length,
    plan_passes,
    plan_tight_passes,
)


def test_bucket_lengths() -> None:
    lengths = sorted({bucket_length(length) for length in range(1, 200)})
    assert lengths == [8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256]


@given(st.lists(st.integers(1, 20_000), max_size=60))
def test_every_prompt_is_read_once_with_little_padding(lengths: list[int]) -> None:
    passes = plan_passes(lengths)
    assert sorted(index for _, members in passes for index in members) == list(range(len(lengths)))
    for padded, members in passes:
        assert len(members) == 1 or padded * len(members) <= TOKENS_PER_PASS
        for index in members:
            assert lengths[index] <= padded
            assert padded == SHORTEST_BUCKET or lengths[index] > padded * 2 / 3


@given(st.lists(st.integers(1, 20_000), max_size=60))
def test_tight_passes_read_every_prompt_once_and_stay_small(lengths: list[int]) -> None:
    passes = plan_tight_passes(lengths)
    assert sorted(index for _, members in passes for index in members) == list(range(len(lengths)))
    for padded, members in passes:
        assert len(members) == 1 or padded * len(members) <= TOKENS_PER_PASS
        assert padded == max(SHORTEST_BUCKET, *(lengths[index] for index in members))
        for index in members:
            assert padded == SHORTEST_BUCKET or lengths[index] > padded * 2 / 3


def cost(passes: list[tuple[int, list[int]]]) -> int:
    return sum(PASS_TOKENS + padded * len(members) for padded, members in passes)


@given(st.lists(st.integers(1, 400), max_size=60))
def test_tight_passes_cost_no_more_than_buckets(lengths: list[int]) -> None:
    assert cost(plan_tight_passes(lengths)) <= cost(plan_passes(lengths))


def test_tight_passes_by_hand() -> None:
    """Eight rows of 30 and eight of 40 together have 80 tokens of padding, which cost what a second pass costs."""
    assert len(plan_tight_passes([30] * 8 + [40] * 8)) == 1
    assert [padded for padded, _ in plan_tight_passes([30] * 9 + [40] * 8)] == [30, 40]
    assert plan_tight_passes([200, 7, 3]) == [(8, [2, 1]), (200, [0])]
