"""Learning rates against transformers' schedules (one step apart, see below) and against values worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from transformers import get_constant_schedule_with_warmup, get_cosine_schedule_with_warmup, get_wsd_schedule

from ingot.optim.config import ScheduleConfig
from ingot.optim.schedule import learning_rate_share


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


@pytest.mark.parametrize("final", [0.0, 0.1])
@pytest.mark.parametrize(("shape", "peer_shape"), [("linear", "linear"), ("one_minus_sqrt", "1-sqrt")])
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


@settings(max_examples=200, deadline=None)
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
    found = shares(steps, kind=kind, warmup=warmup, decay=decay, decay_shape=shape, final=final)
    top = found.index(max(found))
    assert all(0 < share <= 1 for share in found)
    assert found[: top + 1] == sorted(found[: top + 1])
    assert found[top:] == sorted(found[top:], reverse=True)


def test_warmup_and_decay_must_fit_into_the_run() -> None:
    with pytest.raises(ValidationError, match=r"warmup \(0.7\) and decay \(0.4\) together exceed the whole run"):
        ScheduleConfig(kind="wsd", warmup=0.7, decay=0.4)
    assert ScheduleConfig(kind="cosine", warmup=0.7, decay=0.4).warmup == 0.7
