"""Rotary positions as data: base, pairing, rotated share, and how to scale them to longer texts (scaling.py)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ingot.model.positions.scaling import AnyScaling
from ingot.workspace.config import Config


class RopeConfig(Config):
    """Rotary positions (Su et al., arXiv 2104.09864)."""

    base: float = Field(10_000.0, gt=1, description="θ: the longest wavelength is about 2π·θ positions")
    pairing: Literal["halves", "interleaved"] = Field(
        "halves", description="which channels are rotated together: i and i + r/2, or 2i and 2i + 1"
    )
    share: float = Field(1.0, gt=0, le=1, description="share of the head's channels that are rotated (the first ones)")
    scaling: AnyScaling | None = Field(None, description="stretching over longer texts; null for none")

    def rotated(self, head_width: int) -> int:
        """How many channels of a head are rotated."""
        return int(self.share * head_width)

    def describe(self) -> str:
        """Base, pairing, rotated share and scaling in a few words, for `ingot model show`."""
        words = [f"RoPE θ {self.base:.4g}".replace("e+0", "e").replace("e+", "e")]
        words += [f"{self.share:g} of the head"] if self.share < 1 else []
        words += ["interleaved"] if self.pairing == "interleaved" else []
        words += [] if self.scaling is None else [self.scaling.describe()]
        return " ".join(words)
