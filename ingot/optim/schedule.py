"""The learning rate of a step, as a share of the peak: a pure function of (config, step, steps).

Warmup rises linearly over w steps and reaches the peak at step w. Then, with x in (0, 1) the progress through the decay:

    wsd      1 until the last d steps, then  f + (1 − f)(1 − x)  or  f + (1 − f)(1 − sqrt x)   (arXiv 2404.06395, 2405.18392)
    cosine   f + (1 − f)(1 + cos πx)/2 over everything after the warmup
    constant 1

No step is wasted on a rate of zero: the zero lies one step before the first, and `final` one step after the last. In terms of
the schedules of `transformers`, whose first step has rate zero, step s here is their step s + 1 of a run with w + 1 warmup
steps and d + 1 decay steps (a test compares them).
"""

from __future__ import annotations

import math

from ingot.optim.config import ScheduleConfig


def learning_rate_share(config: ScheduleConfig, step: int, steps: int) -> float:
    """The share of the peak learning rate that step `step` of `steps` (from 0) uses."""
    warmup = round(config.warmup * steps)
    if step < warmup:
        return (step + 1) / (warmup + 1)
    if config.kind == "constant":
        return 1.0
    decay = steps - warmup - 1 if config.kind == "cosine" else round(config.decay * steps)
    if step < steps - decay:
        return 1.0
    progress = (step - (steps - decay) + 1) / (decay + 1)
    if config.kind == "cosine":
        shape = (1 + math.cos(math.pi * progress)) / 2
    elif config.decay_shape == "linear":
        shape = 1 - progress
    else:
        shape = 1 - math.sqrt(progress)
    return config.final + (1 - config.final) * shape
