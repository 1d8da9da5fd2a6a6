"""Passes over prompts cover every prompt once, waste little, and stay small."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ingot.inference.prefill import SHORTEST_BUCKET, TOKENS_PER_PASS, bucket_length, plan_passes


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
