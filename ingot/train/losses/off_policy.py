"""Corrections of a policy gradient for samples that its policy would not have drawn: weights on tokens, without a gradient.

Log ratios are kept within ± `limit` (verl and SkyRL: 20): the sum over a long answer may pass 88, beyond which e^x is infinite
in float32, and a gradient through it is no number even where a clip or A = 0 makes it vanish.

Sampler and trainer never agree wholly (other kernels, other precision), and a sample may be older than the policy. Of a token

    ρ = π_old / μ     how far the trainer's policy is from the sampler's
    w = π / μ         the same for the policy of this update

    Importance      truncate: min(ρ, high)             truncated importance sampling (Yao et al. 2025; C = 2 in OLMo 3)
                    mask: ρ if low ≤ ρ ≤ high, else 0  IcePop (arXiv 2510.18855: bounds 0.5 and 5)
                    of a token, of its sequence (the product of its tokens' ρ), or of their geometric mean
    SequenceMask    0 for a whole sequence with A < 0 whose mean log(μ/π) is above δ: off-policy sequence masking
                    (DeepSeek-V3.2, arXiv 2512.02556); with π_old in place of μ it sees the updates on a batch alone
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

LOG_RATIO_LIMIT = 20.0
Level = Literal["token", "product", "mean"]
"""Of a token; of its sequence: the product over its tokens, or their geometric mean."""


@dataclass(frozen=True)
class Probabilities:
    """log π, log π_old and log μ of every scored token, without gradient."""

    current: Tensor
    old: Tensor
    sampled: Tensor


class Correction(ABC):
    """A weight on every token."""

    by_token: bool = True

    @abstractmethod
    def weights(self, logs: Probabilities, streams: Mapping[str, Tensor]) -> Tensor:
        """[n]"""


@dataclass(frozen=True)
class Importance(Correction):
    """The importance weight of the trainer's policy over the sampler's, bounded."""

    level: Level = "token"
    mode: Literal["truncate", "mask"] = "truncate"
    low: float | None = None
    high: float | None = 2.0
    of: Literal["old", "current"] = "old"  # ρ or w
    limit: float = LOG_RATIO_LIMIT

    def weights(self, logs: Probabilities, streams: Mapping[str, Tensor]) -> Tensor:
        newer = logs.old if self.of == "old" else logs.current
        ratio = ratio_at_level(newer - logs.sampled, streams, self.level, self.limit)
        low, high = self.low or 0.0, math.inf if self.high is None else self.high
        if self.mode == "truncate":
            return ratio.clamp(low, high)
        return ratio.masked_fill((ratio < low) | (ratio > high), 0.0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_token", self.level == "token")


@dataclass(frozen=True)
class SequenceMask(Correction):
    """Nothing is unlearnt from an answer that the policy has moved away from."""

    threshold: float
    of: Literal["sampler", "old"] = "sampler"  # from which it has moved: μ or π_old
    by_token: bool = False

    def weights(self, logs: Probabilities, streams: Mapping[str, Tensor]) -> Tensor:
        before = logs.sampled if self.of == "sampler" else logs.old
        moved = at_level(before - logs.current, streams, "mean")
        return ((streams["advantage"] >= 0) | (moved <= self.threshold)).to(moved.dtype)


def at_level(log_ratio: Tensor, streams: Mapping[str, Tensor], level: Level) -> Tensor:
    """The log ratio of each token [n]: its own, or the sum or mean of those of its sequence. Stream `sequence` numbers these."""
    log_ratio = log_ratio * streams["response_mask"]
    if level == "token":
        return log_ratio
    numbers, index = streams["sequence"].unique(return_inverse=True)
    total = log_ratio.new_zeros(len(numbers)).index_add(0, index, log_ratio)
    if level == "mean":
        count = log_ratio.new_zeros(len(numbers)).index_add(0, index, streams["response_mask"].to(log_ratio.dtype))
        total = total / count.clamp(min=1)
    return total[index]


def ratio_at_level(log_ratio: Tensor, streams: Mapping[str, Tensor], level: Level, limit: float) -> Tensor:
    """The ratio of each token, or of its sequence [n], with its logarithm within ± `limit`; none passes a gradient beyond."""
    return at_level(log_ratio, streams, level).clamp(-limit, limit).exp()
