"""The learning rate of a step, as a share of the peak: a pure function of (config, step, steps).

Every schedule is a warmup and then a sequence of pieces. A piece leads from the value v that the piece before it ended with, at
step a, to its own value t at step b; with x = (s − a) / (b − a) the progress of step s through it:

    constant          t                              the value jumps at step a
    linear            t + (v − t)(1 − x)
    cosine            t + (v − t)(1 + cos πx) / 2    (arXiv 1608.03983)
    one_minus_sqrt    t + (v − t)(1 − sqrt x)        (arXiv 2405.18392)
    exponential       v (t / v)^x

The warmup rises linearly over w steps and reaches the peak at step w; the other kinds in these terms:

    wsd               constant 1, then the decay over the last d steps to `final`              (arXiv 2404.06395)
    cosine            one piece to `final`, from step w on
    constant          1
    multi_step        constants, each `factor` times the one before                            (DeepSeek LLM, arXiv 2401.02954)

No step is wasted on a rate of zero: the zero lies one step before the first, and `final` one step after the last. In terms of
the schedules of `transformers`, whose first step has rate zero, step s here is their step s + 1 of a run with w + 1 warmup
steps and d + 1 decay steps (a test compares them). So the decay of wsd begins at step n − d − 1, the last one at the peak.

Stages that share one schedule run a `part` of it each: a share [p, q] of a schedule of steps / (q − p) steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ingot.optim.config import Piece, ScheduleConfig


def learning_rate_share(config: ScheduleConfig, step: int, steps: int) -> float:
    """The share of the peak learning rate that step `step` of `steps` (from 0) uses."""
    first, last = config.part
    if config.part != (0.0, 1.0):
        steps = round(steps / (last - first))
        step += round(first * steps)
    warmup = in_steps(config.warmup, steps)
    if step < warmup:
        return (step + 1) / (warmup + 1)
    begin, value = warmup, 1.0
    for end, to, shape in _pieces(config, steps):
        if step < end:
            return _inside(shape, value, to, (step - begin) / (end - begin))
        begin, value = end, to
    return value


def schedule_in_steps(config: ScheduleConfig, steps: int, steps_for: Callable[[int], int]) -> ScheduleConfig:
    """The same schedule with every `until_tokens` as a share of the steps; `steps_for(n)` are the steps that see n tokens."""
    pieces = []
    for piece in config.pieces:
        if piece.until_tokens is not None:
            end = steps_for(piece.until_tokens)
            piece = Piece(until=end / steps if end <= steps else end, to=piece.to, shape=piece.shape)
        pieces.append(piece)
    return config.model_copy(update={"pieces": tuple(pieces)})


def check_schedule(config: ScheduleConfig, steps: int) -> None:
    """Raise ValueError if warmup, decay or pieces do not fit into a run of `steps` steps; pieces may be too short to count."""
    steps = round(steps / (config.part[1] - config.part[0]))
    warmup = in_steps(config.warmup, steps)
    if warmup > steps:
        raise ValueError(f"the warmup ({warmup} steps) is longer than the run ({steps} steps)")
    decay = in_steps(config.decay, steps)
    if config.kind == "wsd" and warmup + decay > steps + 1:  # two halves of an odd number both round up
        raise ValueError(f"warmup ({warmup} steps) and decay ({decay} steps) together exceed the run ({steps} steps)")
    if config.kind in ("multi_step", "pieces"):
        ends = [end for end, _, _ in _pieces(config, steps)]
        if [warmup, *ends, steps] != sorted([warmup, *ends, steps]) or ends[-1] != steps:
            raise ValueError(
                f"after a warmup to step {warmup} the pieces must end at rising steps, the last at {steps}; they end at {ends}"
            )


def in_steps(span: float, steps: int) -> int:
    """A span as steps: up to 1 it is a share of all steps, above that their number."""
    return round(span * steps) if span <= 1 else round(span)


def _pieces(config: ScheduleConfig, steps: int) -> list[tuple[int, float, str]]:
    """The pieces after the warmup: (end, value there, shape)."""
    match config.kind:
        case "cosine":
            return [(steps, config.final, "cosine")]
        case "wsd":
            decay = in_steps(config.decay, steps)
            return [(steps - decay - 1, 1.0, "constant"), (steps, config.final, config.decay_shape)]
        case "multi_step":
            values = [1.0]
            for milestone in config.milestones:
                values.append(values[-1] * milestone.factor)
            ends = [*(in_steps(milestone.at, steps) for milestone in config.milestones), steps]
            return [(end, value, "constant") for end, value in zip(ends, values, strict=True)]
        case "pieces":
            return [(_end(piece, steps), piece.to, piece.shape) for piece in config.pieces]
        case "constant":
            return []


def _end(piece: Piece, steps: int) -> int:
    if piece.until is None:
        raise ValueError("this schedule counts tokens: schedule_in_steps turns them into steps first")
    return in_steps(piece.until, steps)


def _inside(shape: str, value: float, to: float, progress: float) -> float:
    match shape:
        case "linear":
            left = 1 - progress
        case "cosine":
            left = (1 + math.cos(math.pi * progress)) / 2
        case "one_minus_sqrt":
            left = 1 - math.sqrt(progress)
        case "exponential":
            return value * (to / value) ** progress
        case _:
            return to
    return to + (value - to) * left
