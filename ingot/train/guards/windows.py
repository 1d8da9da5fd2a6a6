"""Windows of the last W values of some numbers, on the device; measures how far new values lie above them.

    robust:    z = (x − median) / max(1.4826 · median |v − median|, floor)      (1.4826: the standard deviation of a normal)
    standard:  z = (x − mean) / max(standard deviation, floor)                  (the skip rule of OLMo 2 and 3)

over the values v *before* x; z is 0 until half of the window is known. Every finite value enters the window, spikes too: a
change that lasts is then accepted after a while, where a window that refuses it would call every later value a spike. The
floor, a thousandth of the level, keeps values that hardly vary from making each tiny change a spike. Values that are all zero
give no scale: against them nothing is one.

Invariant: nothing here waits for the device. All numbers are looked at together, since a GPU takes as long to start a kernel for
one of them. Legend: K numbers, W window.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

NORMAL = 1.4826
FLOOR = 1e-3

Score = Literal["robust", "standard"]


class Windows:
    """A ring of the last values of each number; unknown ones are NaN."""

    def __init__(self, names: Sequence[str], size: int, score: Score, device: torch.device) -> None:
        self.names, self.size, self.score = tuple(names), size, score
        self.values_KW = torch.full((len(names), size), torch.nan, device=device)
        self.count_K = torch.zeros(len(names), dtype=torch.int64, device=device)  # values seen so far

    def deviations(self, values_K: Tensor) -> Tensor:
        """How many deviations the values lie above their levels: z of the formula [K]."""
        level_K, deviation_K = self._level_and_deviation()
        scale_K = torch.maximum(deviation_K, FLOOR * level_K.abs())
        z_K = (values_K.float() - level_K) / scale_K
        return z_K.where((self.count_K >= self.size // 2) & (scale_K > 0), 0.0)

    def medians(self) -> Tensor:
        """The median of the known values of each number [K]; NaN if none is known."""
        return self._medians(self.values_KW)

    def add(self, values_K: Tensor) -> None:
        """Add the values that are finite."""
        finite_K = torch.isfinite(values_K)
        place_K1 = (self.count_K % self.size)[:, None]
        kept_K1 = torch.where(finite_K[:, None], values_K.float()[:, None], self.values_KW.gather(1, place_K1))
        self.values_KW.scatter_(1, place_K1, kept_K1)
        self.count_K += finite_K

    def state(self) -> dict[str, Any]:
        """By name, as plain JSON; asks the device."""
        rows, counts = self.values_KW.tolist(), self.count_K.tolist()
        return {
            name: {"count": count, "values": row[: min(count, self.size)]}
            for name, row, count in zip(self.names, rows, counts, strict=True)
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state`; if that is of windows of another size, with as many of their newest values as fit."""
        for number, name in enumerate(self.names):
            known, count = state[name]["values"], state[name]["count"]
            if len(known) != min(count, self.size):
                oldest = count % len(known)
                known = (known[oldest:] + known[:oldest])[-self.size :]
                count = len(known)
            self.values_KW[number].fill_(torch.nan)
            self.values_KW[number, : len(known)] = torch.tensor(known, device=self.values_KW.device)
            self.count_K[number] = count

    def _level_and_deviation(self) -> tuple[Tensor, Tensor]:
        """The level and the deviation of the known values; NaN if none is known."""
        values_KW = self.values_KW
        if self.score == "robust":
            level_K = self.medians()
            return level_K, NORMAL * self._medians((values_KW - level_K[:, None]).abs())
        known_K = self.count_K.clamp(max=self.size)
        level_K = values_KW.nansum(1) / known_K
        return level_K, ((values_KW - level_K[:, None]).square().nansum(1) / (known_K - 1)).sqrt()

    def _medians(self, values_KW: Tensor) -> Tensor:
        """Like `nanquantile(0.5)`, which asks again how many are known: sorting puts the unknown, NaN, last."""
        sorted_KW = values_KW.sort(dim=1).values
        known_K1 = self.count_K.clamp(min=1, max=self.size)[:, None]
        middle_K2 = torch.cat([known_K1 - 1, known_K1], dim=1) // 2
        return sorted_KW.gather(1, middle_K2).mean(1)
