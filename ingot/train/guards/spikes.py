"""Decides on the device whether a step is taken, and how hard its gradient is clipped.

    taken = finite(loss) · finite(norm) · [with `spike: skip`: neither lies more than `spike_sigmas` above its window]

The factor goes to the optimizer as a tensor, which then leaves weights, moments and its count of steps as they were: the host
never waits to know. (OLMo 2, arXiv 2501.00656; the window is described in windows.py.)

A gradient of exactly zero (in RL all answers to the step's questions may have earned the same) says nothing about either level:
such a step is no spike and does not enter the windows. Else a few of them would make the first step with a gradient one.

With `spike: clip` the gradients of a step with a spike, and of `window / 8` steps after it, are clipped to the median of
the recent norms: a spike then moves the weights no more than an ordinary step does.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ingot.train.guards.config import GuardsConfig
from ingot.train.guards.windows import Windows

WATCHED = ("loss", "gradient_norm")


class Spikes:
    """The windows of the loss and of the gradient norm."""

    def __init__(self, config: GuardsConfig, device: torch.device) -> None:
        self.config = config
        self.windows = Windows(WATCHED, config.window, config.spike_score, device)
        self.calm = max(1, config.window // 8)  # steps that clipping stays tight
        self.tight = torch.zeros((), dtype=torch.int64, device=device)  # how many of them are left

    def admit(self, loss: Tensor, norm: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """1 if the step is to be taken, 0 if not; and how far its values lie above their windows, for the log."""
        values_K = torch.stack([loss.detach().float(), norm.detach().float()])
        taken = torch.isfinite(values_K).all()
        if self.config.spike == "off":
            return taken.float(), {}
        learns = values_K[WATCHED.index("gradient_norm")] != 0
        above_K = self.windows.deviations(values_K).where(learns, 0.0)
        spike = (above_K > self.config.spike_sigmas).any()
        if self.config.spike == "clip":
            self.tight = torch.where(spike, self.calm, (self.tight - 1).clamp(min=0))
        if self.config.spike == "skip":
            taken = taken & ~spike
        self.windows.add(values_K.where(learns, torch.nan))
        above = dict(zip(WATCHED, above_K.unbind(), strict=True))
        return taken.float(), {f"{name}_deviations": each for name, each in above.items()}

    def clip(self, limit: float) -> float | Tensor:
        """The limit of the gradient norm for the step that `admit` was just asked about."""
        if self.config.spike != "clip":
            return limit
        usual = self.windows.medians()[WATCHED.index("gradient_norm")].clamp(max=limit)
        return torch.where(self.tight > 0, usual, limit)

    def state(self) -> dict[str, Any]:
        """As plain JSON; asks the device."""
        return {"tight": int(self.tight)} | self.windows.state()

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        self.tight.fill_(state["tight"])
        self.windows.restore(state)
