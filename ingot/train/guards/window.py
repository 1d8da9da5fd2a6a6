"""The last W values of one number, on the device, and how far a new value lies above them.

    robust:    z = (x − median) / max(1.4826 · median |v − median|, floor)      (1.4826: the standard deviation of a normal)
    standard:  z = (x − mean) / max(standard deviation, floor)                  (the skip rule of OLMo 2 and 3)

over the values v *before* x; z is 0 until half of the window is known. Every finite value enters the window, spikes too: a
change that lasts is then accepted after a while, where a window that refuses it would call every later value a spike. The
floor, a thousandth of the level, keeps values that hardly vary from making each tiny change a spike.

Invariant: nothing here waits for the device. Legend: W window.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

NORMAL = 1.4826
FLOOR = 1e-3

Score = Literal["robust", "standard"]


class Window:
    """A ring of the last values; unknown ones are NaN."""

    def __init__(self, size: int, score: Score, device: torch.device) -> None:
        self.size, self.score = size, score
        self.values_W = torch.full((size,), torch.nan, device=device)
        self.count = torch.zeros((), dtype=torch.int64, device=device)  # values seen so far

    def level_and_deviation(self) -> tuple[Tensor, Tensor]:
        """What the known values lie around, and how closely; NaN if none is known."""
        values_W = self.values_W
        if self.score == "robust":
            level = values_W.nanquantile(0.5)
            deviation = NORMAL * (values_W - level).abs().nanquantile(0.5)
        else:
            known = self.count.clamp(max=self.size)
            level = values_W.nansum() / known
            deviation = ((values_W - level).square().nansum() / (known - 1)).sqrt()
        return level, torch.maximum(deviation, FLOOR * level.abs())

    def deviations(self, value: Tensor) -> Tensor:
        """How many deviations `value` lies above the level: z of the formula."""
        level, deviation = self.level_and_deviation()
        z = (value.float() - level) / deviation
        return torch.where(self.count >= self.size // 2, z, torch.zeros_like(z))

    def add(self, value: Tensor) -> None:
        """Let `value` into the window if it is finite."""
        finite = torch.isfinite(value)
        place = (self.count % self.size).reshape(1)
        kept = torch.where(finite, value.float(), self.values_W[place])
        self.values_W.index_copy_(0, place, kept.reshape(1))
        self.count += finite

    def state(self) -> dict[str, Any]:
        """The window as plain JSON; asks the device."""
        known = min(int(self.count), self.size)
        return {"count": int(self.count), "values": self.values_W[:known].tolist()}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state`; if that is of a window of another size, with as many of its newest values as fit."""
        known, count = state["values"], state["count"]
        if len(known) != min(count, self.size):
            oldest = count % len(known)
            known = (known[oldest:] + known[:oldest])[-self.size :]
            count = len(known)
        self.values_W.fill_(torch.nan)
        self.values_W[: len(known)] = torch.tensor(known, device=self.values_W.device)
        self.count.fill_(count)
