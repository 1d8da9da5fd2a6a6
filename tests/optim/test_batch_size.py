"""Growing batches against a loop over all steps, and against the published sizes of DeepSeek-V3, GLM-4.5 and MiniMax-01."""

from __future__ import annotations

import math
import sys
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from ingot.optim.batch_size import BatchSizes
from ingot.optim.config import BatchWarmupConfig, Tokens


def sizes(batch_tokens: int, sequence_length: int, **warmup: Any) -> BatchSizes:
    return BatchSizes(batch_tokens, sequence_length, BatchWarmupConfig.model_validate(warmup) if warmup else None)


def test_a_constant_batch() -> None:
    plan = sizes(4096 * 8, 4096)
    assert [plan.rows(step) for step in (0, 1, 10**9)] == [8, 8, 8]
    assert plan.rows_before(10**12) == 8 * 10**12
    assert plan.steps_for(4096 * 8 * 5) == 5 and plan.steps_for(4096 * 8 * 5 + 1) == 6
    assert plan.rate_share(0) == 1.0


@given(st.integers(1, 12), st.integers(1, 20), st.integers(1, 4), st.integers(1, 3000), st.integers(1, 7))
def test_a_linear_warmup_against_a_walk_over_all_steps(
    start: int, rises: int, increment: int, over: int, length: int
) -> None:
    final = start + rises * increment
    plan = sizes(final * length, length, start=start * length, over=over, increment=increment)
    seen = 0
    for step in range(120):
        tokens = seen * length
        rows = final if tokens >= over else start + increment * math.floor(Fraction(tokens * rises, over))
        assert (plan.rows(step), plan.rows_before(step)) == (rows, seen)
        assert plan.steps_for(seen * length) == step
        assert plan.steps_for(seen * length + 1) == step + 1
        seen += rows


@given(st.lists(st.tuples(st.integers(1, 500), st.integers(1, 30)), min_size=1, max_size=5), st.integers(1, 30))
def test_given_sizes_against_a_walk_over_all_steps(changes: list[tuple[int, int]], start: int) -> None:
    points = sorted(dict(changes).items())
    listed = [{"after": after * 3, "batch_tokens": rows * 3} for after, rows in points]
    plan = sizes(points[-1][1] * 3, 3, start=start * 3, sizes=listed)
    seen = 0
    for step in range(100):
        rows = [start, *(rows for after, rows in points if after <= seen)][-1]
        assert (plan.rows(step), plan.rows_before(step)) == (rows, seen)
        seen += rows


def test_deepseek_v3() -> None:
    """3072 to 15360 sequences of 4096 over 469B tokens: half-way 9216; 14.8T tokens in all."""
    plan = sizes(15360 * 4096, 4096, start=3072 * 4096, over="469B")
    assert plan.rows(0) == 3072
    assert plan.rows(plan.steps_for(469_000_000_000)) == 15360 > plan.rows(plan.steps_for(469_000_000_000) - 1)
    assert plan.rows(plan.steps_for(234_500_000_000)) == pytest.approx(9216, abs=2)
    steps = plan.steps_for(14_800_000_000_000)
    assert plan.tokens_before(steps - 1) < 14_800_000_000_000 <= plan.tokens_before(steps)
    # While the batch grows, d tokens / d step = b(t): over W tokens that takes W ln(b1/b0) / (b1 − b0) steps.
    growing = 469e9 / 4096 * math.log(5) / 12288
    assert plan.steps_for(469_000_000_000) == pytest.approx(growing, rel=1e-3)
    assert len(plan.stairs) <= 15360 - 3072 + 1
    assert sys.getsizeof(plan.stairs) < 150_000, "what is kept does not grow with the steps"


def test_glm_4_5_in_increments() -> None:
    """16M to 64M tokens over 500B: with 64 rows at a time every batch can be divided by 64 ranks."""
    plan = sizes(64 * 2**20, 4096, start="16Mi", over="500B", increment=64)
    rows = {plan.rows(plan.steps_for(share * 5_000_000_000)) for share in range(0, 120)}
    assert min(rows) == 4096 and max(rows) == 16384 and all(one % 64 == 0 for one in rows)
    assert len(plan.stairs) == (16384 - 4096) // 64 + 1


def test_minimax_01_doublings_and_the_root_of_the_batch() -> None:
    """16M, 32M from 69B tokens on, 64M from 790B, 128M from 4.7T."""
    doublings = [("69B", "32Mi"), ("790B", "64Mi"), ("4.7T", "128Mi")]
    listed = [{"after": after, "batch_tokens": size} for after, size in doublings]
    plan = sizes(2**27, 8192, start="16Mi", sizes=listed, lr_scaling="sqrt")
    billion = 10**9
    points = {tokens: plan.steps_for(tokens * billion) for tokens in (0, 68, 70, 789, 791, 4699, 4701, 9000)}
    assert [plan.rows(step) * 8192 // 2**20 for step in points.values()] == [16, 16, 32, 32, 64, 64, 128, 128]
    assert plan.steps_for(69 * billion) == math.ceil(69 * billion / 2**24)
    shares = [plan.rate_share(step) for step in points.values()]
    assert shares == pytest.approx([8**-0.5, 8**-0.5, 0.5, 0.5, 2**-0.5, 2**-0.5, 1, 1])


@pytest.mark.parametrize(
    ("warmup", "message"),
    [
        ({"start": 12, "over": 100}, r"batch_warmup.start \(12\) must be a multiple of sequence_length \(8\)"),
        ({"start": 8, "over": 100, "increment": 2}, r"from 1 to 4 rows, which is not a multiple of increment \(2\)"),
        ({"start": 32, "over": 100}, "must grow, and it goes from 4 to 4 rows"),
        ({"start": 64, "over": 100}, "must grow, and it goes from 8 to 4 rows"),
        ({"start": 8, "sizes": [{"after": 9, "batch_tokens": 16}]}, "ends at 2 rows, batch_tokens are 4"),
    ],
)
def test_sizes_that_do_not_fit(warmup: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sizes(32, 8, **warmup)


def test_one_way_of_growing() -> None:
    for wrong in ({"start": 8}, {"start": 8, "over": 9, "sizes": [{"after": 9, "batch_tokens": 16}]}):
        with pytest.raises(ValidationError, match="exactly one of over and sizes"):
            BatchWarmupConfig.model_validate(wrong)
    with pytest.raises(ValidationError, match="rising numbers of tokens"):
        listed = [{"after": after, "batch_tokens": 16} for after in (9, 5)]
        BatchWarmupConfig.model_validate({"start": 8, "sizes": listed})


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("11.2T", 11_200_000_000_000),
        ("500B", 500_000_000_000),
        ("4M", 4_000_000),
        ("64 K", 64_000),
        ("16Mi", 16_777_216),
        ("1_000_000", 1_000_000),
        ("11.2e12", 11_200_000_000_000),
        (11.2e12, 11_200_000_000_000),
        (1_000, 1_000),
    ],
)
def test_token_counts_as_recipes_write_them(written: Any, meant: int) -> None:
    assert TypeAdapter(Tokens).validate_python(written) == meant


@pytest.mark.parametrize("written", ["11.2", "4 millions", "T", "1.5e0", "-3M", 2.5, "0.0001K"])
def test_what_is_no_token_count(written: Any) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Tokens).validate_python(written)
