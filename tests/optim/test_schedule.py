"""Learning rates against transformers' schedules (one step apart, see below), torch's, and published points by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from torch.optim import lr_scheduler
from transformers import (
    get_constant_schedule_with_warmup,
    get_cosine_schedule_with_warmup,
    get_cosine_with_min_lr_schedule_with_warmup,
    get_wsd_schedule,
)

from ingot.optim.batch_size import BatchSizes
from ingot.optim.config import OF_KINDS, BatchWarmupConfig, ScheduleConfig
from ingot.optim.schedule import check_schedule, learning_rate_share, schedule_in_steps


def shares(steps: int, **options: Any) -> list[float]:
    config = ScheduleConfig.model_validate(options)
    return [learning_rate_share(config, step, steps) for step in range(steps)]


def peer(make: Any, *arguments: Any, steps: int, **options: Any) -> list[float]:
    """Steps 1 … steps of a schedule of transformers: its step 0 has rate zero, ours is never zero.

    So step s here is step s + 1 there, and a ramp over n steps here is one over n + 1 steps there, whose zero (or final
    value) lies just outside of the run.
    """
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    function = make(optimizer, *arguments, **options).lr_lambdas[0]
    return [function(step + 1) for step in range(steps)]


@pytest.mark.parametrize(("steps", "warmup"), [(10, 0), (20, 5), (100, 10), (3, 1), (1, 0)])
def test_cosine_is_that_of_transformers(steps: int, warmup: int) -> None:
    expected = peer(get_cosine_schedule_with_warmup, warmup + 1, steps + 1, steps=steps)
    assert shares(steps, kind="cosine", warmup=warmup / steps) == pytest.approx(expected, abs=1e-12)


def torch_shares(make: Any, steps: int, **options: Any) -> list[float]:
    """The learning rates of one of torch's schedulers."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = make(optimizer, **options)
    found = []
    for _ in range(steps):
        found.append(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()
    return found


@pytest.mark.parametrize(("steps", "warmup", "final"), [(20, 5, 0.1), (100, 2, 0.03)])
def test_cosine_with_a_floor_is_that_of_transformers(steps: int, warmup: int, final: float) -> None:
    expected = peer(get_cosine_with_min_lr_schedule_with_warmup, warmup + 1, steps + 1, steps=steps, min_lr_rate=final)
    found = shares(steps, kind="cosine", warmup=warmup, final=final)
    assert found[warmup:] == pytest.approx(expected[warmup:], abs=1e-12)


@pytest.mark.parametrize("final", [0.0, 0.1])
@pytest.mark.parametrize(
    ("shape", "peer_shape"), [("linear", "linear"), ("one_minus_sqrt", "1-sqrt"), ("cosine", "cosine")]
)
@pytest.mark.parametrize(("steps", "warmup", "decay"), [(20, 5, 4), (100, 0, 20), (10, 2, 1), (12, 3, 8)])
def test_warmup_stable_decay_is_that_of_transformers(
    steps: int, warmup: int, decay: int, shape: str, peer_shape: str, final: float
) -> None:
    arguments = {"num_warmup_steps": warmup + 1, "num_stable_steps": steps - decay - warmup - 1}
    arguments |= {"num_decay_steps": decay + 1}
    expected = peer(get_wsd_schedule, **arguments, steps=steps, decay_type=peer_shape, min_lr_ratio=final)
    found = shares(steps, kind="wsd", warmup=warmup / steps, decay=decay / steps, decay_shape=shape, final=final)
    assert found[warmup:] == pytest.approx(expected[warmup:], abs=1e-12)
    # Warming up, transformers rises from `final`, we rise from zero.
    rising = [share * (1 - final) + final for share in found[:warmup]]
    assert rising == pytest.approx(expected[:warmup], abs=1e-12)


@pytest.mark.parametrize("warmup", [0, 1, 7])
def test_constant_is_that_of_transformers(warmup: int) -> None:
    expected = peer(get_constant_schedule_with_warmup, warmup + 1, steps=14)
    assert shares(14, kind="constant", warmup=warmup / 14) == pytest.approx(expected, abs=1e-12)


def test_values_worked_out_by_hand() -> None:
    assert shares(10, kind="wsd", warmup=0.3, decay=0.4) == pytest.approx(
        [0.25, 0.5, 0.75, 1, 1, 1, 0.8, 0.6, 0.4, 0.2], abs=1e-12
    )
    assert shares(8, kind="wsd", warmup=0, decay=0.375, decay_shape="one_minus_sqrt", final=0.5) == pytest.approx(
        [1, 1, 1, 1, 1, 0.75, 0.5 + 0.5 * (1 - math.sqrt(0.5)), 0.5 + 0.5 * (1 - math.sqrt(0.75))], abs=1e-12
    )
    assert shares(5, kind="cosine", warmup=0.2, final=0.2) == pytest.approx(
        [0.5, 1, 0.2 + 0.8 * (2 + math.sqrt(2)) / 4, 0.6, 0.2 + 0.8 * (2 - math.sqrt(2)) / 4], abs=1e-12
    )
    assert shares(4, kind="constant", warmup=0.5) == pytest.approx([1 / 3, 2 / 3, 1, 1], abs=1e-12)


@given(
    st.integers(1, 60),
    st.sampled_from(["wsd", "cosine", "constant"]),
    st.floats(0, 0.5),
    st.floats(0, 0.5),
    st.sampled_from(["linear", "one_minus_sqrt"]),
    st.floats(0, 1),
)
def test_every_schedule_rises_then_falls_and_is_never_zero(
    steps: int, kind: str, warmup: float, decay: float, shape: str, final: float
) -> None:
    given = {"decay": decay, "decay_shape": shape, "final": final}
    own = {name: value for name, value in given.items() if kind in OF_KINDS[name]}
    found = shares(steps, kind=kind, warmup=warmup, **own)
    top = found.index(max(found))
    assert all(0 < share <= 1 for share in found)
    assert found[: top + 1] == sorted(found[: top + 1])
    assert found[top:] == sorted(found[top:], reverse=True)


def test_warmup_and_decay_must_fit_into_the_run() -> None:
    with pytest.raises(ValidationError, match=r"warmup \(0.7\) and decay \(0.4\) together exceed the whole run"):
        ScheduleConfig(kind="wsd", warmup=0.7, decay=0.4)
    assert ScheduleConfig(kind="cosine", warmup=0.7).warmup == 0.7
    with pytest.raises(
        ValueError, match=r"warmup \(50 steps\) and decay \(60 steps\) together exceed the run \(100 steps\)"
    ):
        check_schedule(ScheduleConfig(kind="wsd", warmup=50, decay=60), 100)
    with pytest.raises(ValueError, match=r"the warmup \(2000 steps\) is longer than the run \(100 steps\)"):
        check_schedule(ScheduleConfig(kind="cosine", warmup=2000), 100)
    with pytest.raises(ValidationError, match=r"warmup \(2.5\) is neither a share of the steps"):
        ScheduleConfig(warmup=2.5)
    with pytest.raises(ValidationError, match="warmup: 1 is the whole run"):  # one step was meant
        ScheduleConfig(kind="cosine", warmup=1)


def test_spans_above_one_are_numbers_of_steps() -> None:
    by_share = shares(40, kind="wsd", warmup=0.1, decay=0.25)
    assert shares(40, kind="wsd", warmup=4, decay=10) == by_share
    assert shares(40, kind="wsd", warmup=4, decay=0.25) == by_share


def test_multi_step_is_that_of_torch() -> None:
    expected = torch_shares(lr_scheduler.MultiStepLR, 50, milestones=[40, 45], gamma=0.316)
    assert shares(50, kind="multi_step", warmup=0) == pytest.approx(expected, abs=1e-12)
    expected = torch_shares(lr_scheduler.MultiStepLR, 50, milestones=[7, 20, 33], gamma=0.5)
    drops = [{"at": at, "factor": 0.5} for at in (7, 0.4, 33)]
    assert shares(50, kind="multi_step", warmup=0, milestones=drops) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("shape", "make", "options"),
    [
        ("cosine", lr_scheduler.CosineAnnealingLR, {"T_max": 60, "eta_min": 0.2}),
        ("linear", lr_scheduler.LinearLR, {"start_factor": 1.0, "end_factor": 0.2, "total_iters": 60}),
        ("exponential", lr_scheduler.ExponentialLR, {"gamma": 0.2 ** (1 / 60)}),
        ("constant", lr_scheduler.ConstantLR, {"factor": 0.2, "total_iters": 100}),
    ],
)
def test_a_piece_is_that_of_torch(shape: str, make: Any, options: Any) -> None:
    """torch reaches the end value after as many steps as the piece has: the first step of the piece that follows."""
    pieces = [{"until": 60, "to": 0.2, "shape": shape}, {"until": 1, "to": 0.2}]
    assert shares(80, kind="pieces", warmup=0, pieces=pieces)[:61] == pytest.approx(
        torch_shares(make, 61, **options), abs=1e-12
    )


@pytest.mark.parametrize(
    ("kind", "pieces"),
    [
        ({"kind": "cosine", "final": 0.1}, [{"until": 1, "to": 0.1, "shape": "cosine"}]),
        (
            {"kind": "wsd", "decay": 29, "decay_shape": "one_minus_sqrt", "final": 0.1},
            [{"until": 70, "to": 1}, {"until": 1, "to": 0.1, "shape": "one_minus_sqrt"}],
        ),
        ({"kind": "multi_step"}, [{"until": 80, "to": 1}, {"until": 0.9, "to": 0.316}, {"until": 1, "to": 0.316**2}]),
    ],
)
def test_pieces_express_the_other_kinds(kind: Any, pieces: Any) -> None:
    assert shares(100, kind="pieces", warmup=10, pieces=pieces) == pytest.approx(
        shares(100, warmup=10, **kind), abs=1e-15
    )


V3_TOKENS = 14_800_000_000_000
V3 = {
    "kind": "pieces",
    "warmup": 2000,
    "pieces": [
        {"until_tokens": "10T", "to": 1},
        {"until_tokens": "14.3T", "to": 0.1, "shape": "cosine"},
        {"until_tokens": "14.633T", "to": 0.1},
        {"until_tokens": "14.8T", "to": 7.3e-6 / 2.2e-4},
    ],
}


def test_deepseek_v3_at_published_token_counts() -> None:
    """Warm-up over 2K steps to 2.2e-4, constant to 10T tokens, cosine to 2.2e-5 over 4.3T, then 333B, and 167B at 7.3e-6.

    The batch grows over the first 469B tokens, so that a share of the tokens is another share of the steps.
    """
    sizes = BatchSizes(15360 * 4096, 4096, BatchWarmupConfig.model_validate({"start": 3072 * 4096, "over": "469B"}))
    steps = sizes.steps_for(V3_TOKENS)
    config = schedule_in_steps(ScheduleConfig.model_validate(V3), steps, sizes.steps_for)
    check_schedule(config, steps)

    def rate(tokens: float) -> float:
        return 2.2e-4 * learning_rate_share(config, sizes.steps_for(round(tokens)), steps)

    assert 2.2e-4 * learning_rate_share(config, 999, steps) == pytest.approx(1.1e-4, rel=1e-3)
    assert learning_rate_share(config, 2000, steps) == 1.0
    assert rate(0.4e12) == rate(5e12) == rate(10e12) == 2.2e-4
    assert rate(10e12 + 4.3e12 / 2) == pytest.approx((2.2e-4 + 2.2e-5) / 2, rel=1e-4)
    assert rate(10e12 + 4.3e12 / 4) == pytest.approx(2.2e-5 + 1.98e-4 * (1 + math.sqrt(0.5)) / 2, rel=1e-4)
    assert rate(14.3e12) == pytest.approx(2.2e-5, rel=1e-9) == rate(14.6e12)
    assert rate(14.64e12) == pytest.approx(7.3e-6, rel=1e-9) == rate(14.79e12)
    assert learning_rate_share(config, steps - 1, steps) == pytest.approx(7.3 / 220)


def test_kimi_k2_and_minimax_01_at_published_token_counts() -> None:
    """K2: 2e-4 for 10T, cosine to 2e-5 over 5.5T. MiniMax-01: 2e-4 for 7.2T, 1.3e-4 for 3.2T, exponential to 3e-5 over 1T."""
    sizes = BatchSizes(67_108_864, 4096)
    steps = sizes.steps_for(15_500_000_000_000)
    pieces: list[Any] = [{"until_tokens": "10T", "to": 1}, {"until_tokens": "15.5T", "to": 0.1, "shape": "cosine"}]
    k2 = ScheduleConfig.model_validate({"kind": "pieces", "warmup": 500, "pieces": pieces})
    config = schedule_in_steps(k2, steps, sizes.steps_for)
    halfway = learning_rate_share(config, sizes.steps_for(12_750_000_000_000), steps)
    assert 2e-4 * halfway == pytest.approx(1.1e-4, rel=1e-4)
    assert 2e-4 * learning_rate_share(config, steps - 1, steps) == pytest.approx(2e-5, rel=1e-4)

    steps = sizes.steps_for(11_400_000_000_000)
    pieces = [{"until_tokens": "7.2T", "to": 1}, {"until_tokens": "10.4T", "to": 0.65}]
    pieces += [{"until_tokens": "11.4T", "to": 0.15, "shape": "exponential"}]
    minimax = ScheduleConfig.model_validate({"kind": "pieces", "warmup": 500, "pieces": pieces})
    config = schedule_in_steps(minimax, steps, sizes.steps_for)
    points = {
        tokens: learning_rate_share(config, sizes.steps_for(tokens), steps) for tokens in (7 * 10**12, 9 * 10**12)
    }
    assert [2e-4 * share for share in points.values()] == pytest.approx([2e-4, 1.3e-4])
    middle = learning_rate_share(config, sizes.steps_for(10_900_000_000_000), steps)
    assert 2e-4 * middle == pytest.approx(math.sqrt(1.3e-4 * 3e-5), rel=1e-4), "the geometric mean, half-way"


def test_pieces_must_lead_from_the_warmup_to_the_end() -> None:
    def check(*pieces: Any) -> None:
        check_schedule(ScheduleConfig.model_validate({"kind": "pieces", "warmup": 10, "pieces": pieces}), 100)

    check({"until": 50, "to": 1}, {"until": 1.0, "to": 0.5, "shape": "linear"})
    for pieces in (
        [{"until": 0.5, "to": 1}],
        [{"until": 0.05, "to": 1}, {"until": 1, "to": 0}],
        [{"until": 0.6, "to": 1}, {"until": 50, "to": 0.5}, {"until": 1, "to": 0}],
    ):
        with pytest.raises(
            ValueError, match="after a warmup to step 10 the pieces must end at rising steps, the last at 100"
        ):
            check(*pieces)
    check({"until": 0.995, "to": 0.5}, {"until": 1.0, "to": 0.1})  # too short for a step: left out
    with pytest.raises(ValidationError, match="an exponential piece cannot begin at 0"):
        check({"until": 0.5, "to": 0}, {"until": 1, "to": 0.5, "shape": "exponential"})
    with pytest.raises(ValueError, match=r"they end at \[90, 80, 100\]"):
        drops = [{"at": 0.9, "factor": 0.5}, {"at": 0.8, "factor": 0.5}]
        check_schedule(ScheduleConfig.model_validate({"kind": "multi_step", "milestones": drops}), 100)
    with pytest.raises(ValidationError, match="exactly one of until and until_tokens"):
        check({"until": 1, "until_tokens": "4B", "to": 1})
    with pytest.raises(ValidationError, match="`pieces` and kind: pieces belong together"):
        ScheduleConfig.model_validate({"pieces": [{"until": 1, "to": 1}]})


def test_two_stages_run_parts_of_one_schedule() -> None:
    whole = shares(200, kind="cosine", warmup=20, final=0.1)
    first = shares(130, kind="cosine", warmup=20, final=0.1, part=(0.0, 0.65))
    second = shares(70, kind="cosine", warmup=20, final=0.1, part=(0.65, 1.0))
    assert first + second == pytest.approx(whole, abs=1e-15)


def test_a_re_decay_starts_at_the_rate_of_the_stable_phase() -> None:
    """From a checkpoint at step 60 of a run at the peak: 40 steps of decay, the same as those of the run that decays there."""
    whole = shares(100, kind="wsd", warmup=10, decay=40, final=0.05)
    assert shares(40, kind="wsd", warmup=0, decay=1.0, final=0.05) == pytest.approx(whole[60:], abs=1e-15)
