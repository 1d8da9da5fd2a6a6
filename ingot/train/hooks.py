"""Hooks that run before and after the update of an optimizer step: QK-clip, routers' biases, the noise scale.

    gradients  →  before_update(step)  →  optimizer  →  after_update(step)

A hook sees the step's sums and norm as tensors on the device, and adds to `step.metrics` what is to be logged; it must not wait
for the device. Hooks run in the order of the list. What a hook keeps between steps is part of the checkpoint, under its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ingot.model.feed_forward.mixture import update_biases
from ingot.model.feed_forward.statistics import router_metrics
from ingot.model.transformer import Transformer
from ingot.optim.noise_scale import NoiseScale
from ingot.optim.qk_clip import clip_query_key
from ingot.train.config import TrainingConfig
from ingot.train.guards.guards import Guards
from ingot.train.parallel.layout import Layout
from ingot.train.passes import Sums


@dataclass
class OptimizerStep:
    """One optimizer step as hooks see it."""

    number: int
    passes: int  # micro-batches
    tokens: Tensor
    sums: Sums
    norm: Tensor  # of the whole gradient, before clipping
    taken: Tensor  # 1, or 0 if the guards skip the step
    metrics: dict[str, Tensor] = field(default_factory=dict)


class Hook:
    """A hook that does nothing."""

    name = ""  # names its state in a checkpoint

    def before_update(self, step: OptimizerStep) -> None:
        """The gradients are complete, the weights are those they were computed with."""

    def after_update(self, step: OptimizerStep) -> None:
        """The weights are new, if the step was taken."""

    def state(self) -> dict[str, Any] | None:
        """The hook's state for a checkpoint, as plain JSON; None if it has none."""
        return None

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`."""


class QkClip(Hook):
    """Shrinks the projections of heads whose logits are too large (optim/qk_clip.py); a skipped step clips nothing."""

    def __init__(self, model: Transformer, threshold: float, layout: Layout | None) -> None:
        self.model, self.threshold, self.layout = model, threshold, layout

    def after_update(self, step: OptimizerStep) -> None:
        maxima = {layer: maxima_H * step.taken for layer, maxima_H in step.sums.record.max_logits.items()}
        found = clip_query_key(self.model, maxima, self.threshold)
        if found and self.layout is not None:  # tensor ranks have heads of their own, as many each
            self.layout.max_over(found["largest_logit"], "tensor")
            self.layout.sum_over(found["clipped_heads"], "tensor").div_(self.layout.size("tensor"))
        step.metrics |= found


class GradientNoise(Hook):
    """The gradient noise scale from the step's first pass and the whole step (optim/noise_scale.py)."""

    name = "noise"

    def __init__(self, device: torch.device) -> None:
        self.scale = NoiseScale(device)

    def after_update(self, step: OptimizerStep) -> None:
        if step.sums.first is None or step.passes < 2:
            return
        square, size = step.sums.first
        self.scale.update(square * (step.tokens / size) ** 2, size, step.norm.square(), step.tokens)
        step.metrics["noise_scale"] = self.scale.value

    def state(self) -> dict[str, Any]:
        return self.scale.state()

    def restore(self, state: Mapping[str, Any]) -> None:
        self.scale.restore(state)


class RouterBiases(Hook):
    """Moves the routers' selection biases with the loads of the step; a skipped step leaves them as they were."""

    def __init__(self, model: Transformer, guards: Guards) -> None:
        self.model, self.guards = model, guards

    def after_update(self, step: OptimizerStep) -> None:
        loads = step.sums.record.loads
        if loads:
            with self.guards.undoing_skipped(self.model, step.taken):
                update_biases(self.model, loads)
            step.metrics |= router_metrics(loads) | self.guards.idle_experts(loads)


def make_hooks(
    model: Transformer, config: TrainingConfig, layout: Layout | None, guards: Guards, device: torch.device
) -> list[Hook]:
    """The hooks that a configuration asks for."""
    hooks: list[Hook] = []
    if config.optimizer.qk_clip is not None:
        hooks.append(QkClip(model, config.optimizer.qk_clip, layout))
    if config.measure_noise:
        hooks.append(GradientNoise(device))
    return [*hooks, RouterBiases(model, guards)]
