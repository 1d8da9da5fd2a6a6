"""Compares the estimate of a plan with the published run of the same system on the same device.

    ratio = estimated tokens per second and device / published tokens per second and device

Below 1 the estimate is slower than the run was. Where a report says what its trainer did and ours does not (published.py), the
estimate is made again with those practices, one more each time, on the same layout: what they explain and what they leave open
is computed, not asserted. Memory is not looked at again: a practice may need more than the device has.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ingot.planner.hardware import find_gpu, reached
from ingot.planner.placement import Placement
from ingot.planner.published import PublishedRun
from ingot.planner.shape import Shape
from ingot.planner.speed import OURS, step_speed
from ingot.train.config import ActivationsConfig, TrainingConfig


@dataclass(frozen=True)
class Explained:
    """The ratio with one more practice of the published run, and all those before it."""

    practice: str
    ratio: float


@dataclass(frozen=True)
class RunComparison:
    """One stage's estimate and the published run. `published_mfu` counts FLOPs as the plan does, not as the report did."""

    stage: str
    tokens_per_second: float
    published_tokens_per_second: float
    ratio: float
    published_mfu: float
    reason: str
    explained: tuple[Explained, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def compare(
    stage: str,
    config: TrainingConfig,
    shape: Shape,
    placement: Placement,
    run: PublishedRun,
    product: float | None = None,
) -> RunComparison | None:
    """The comparison; None where the run gives no speed, or ran on another device, or the stage does not fit."""
    estimate = placement.tokens_per_second
    if (
        config.step_tokens is None
        or run.speed is None
        or run.gpu != placement.gpu
        or not placement.fits
        or not estimate
        or placement.mfu is None
    ):
        return None
    ratio = estimate / run.speed
    gpu = find_gpu(placement.gpu)
    changed = config.model_copy(
        update={
            "micro_batch_tokens": placement.micro_batch_tokens,
            "activations": ActivationsConfig(keep=placement.keep),
        }
    )
    explained, practices = [], OURS
    for practice in run.practices:
        practices = practices | {practice}
        step = step_speed(shape, changed, placement.mesh, gpu, reached(gpu, product), practices).step
        explained.append(Explained(practice.value, config.step_tokens / step / placement.gpus / run.speed))
    return RunComparison(stage, estimate, run.speed, ratio, placement.mfu / ratio, run.reason, tuple(explained))
