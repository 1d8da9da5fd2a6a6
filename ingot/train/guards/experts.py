"""Counts how long each expert has been idle: steps in a row without a token, by layer, on the device.

A small step may well leave an expert out; the same one in fifty steps in a row is dead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ingot.model.record import RouterLoad


class IdleExperts:
    """The counters of every router."""

    def __init__(self) -> None:
        self.steps: dict[int, Tensor] = {}  # by layer: [E]

    def count(self, loads: Mapping[int, RouterLoad]) -> Tensor:
        """Count the step with these loads; the longest that any expert has been idle."""
        for layer, load in loads.items():
            idle_E = load.choices_E == 0
            earlier_E = self.steps.get(layer, torch.zeros_like(load.choices_E)).to(load.choices_E)
            self.steps[layer] = (earlier_E + 1) * idle_E
        return torch.stack([self.steps[layer].max() for layer in loads]).max()

    def state(self) -> dict[str, Any]:
        """As plain JSON; asks the device."""
        return {str(layer): steps_E.tolist() for layer, steps_E in self.steps.items()}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        self.steps = {int(layer): torch.tensor(steps) for layer, steps in state.items()}
