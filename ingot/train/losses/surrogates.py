"""Surrogates: what a policy gradient makes of a token's ratio r and advantage A, to be maximised.

    Clip             min( r A, clip(r, 1 − low, 1 + high) A )        PPO, arXiv 1707.06347; clip-higher: DAPO, arXiv 2503.14476
      with `dual`    at least dual · A where A < 0                   dual clip, arXiv 1912.09729; `delta` of INTELLECT-2 in TRL
    ClippedWeight    sg[ clip(r, low, high) ] A log π                CISPO, arXiv 2506.13585
    SoftGate         4/τ · σ( τ (r − 1) ) A                          SAPO, arXiv 2511.20347
    ProbabilityMask  m r A − weight (log r)²                         DPPO, prime-rl; m = 0 where π has moved by more than a bound

Clip takes the gradient from tokens beyond its bounds; ClippedWeight bounds their weight, and every token keeps a gradient.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor


class Surrogate(ABC):
    """A function of single tokens."""

    proportional: ClassVar[bool] = False  # f(r, k A) = k f(r, A) for every k ≥ 0

    @abstractmethod
    def __call__(self, ratio: Tensor, advantage: Tensor, logprobs: Tensor) -> tuple[Tensor, Tensor]:
        """What is maximised [n], and whether the ratio was beyond a bound [n]; `logprobs` are log π."""


@dataclass(frozen=True)
class Clip(Surrogate):
    """PPO's pessimistic bound."""

    proportional: ClassVar[bool] = True
    low: float = 0.2
    high: float = 0.28
    dual: float | None = None

    def __call__(self, ratio: Tensor, advantage: Tensor, logprobs: Tensor) -> tuple[Tensor, Tensor]:
        plain, bounded = ratio * advantage, ratio.clamp(1 - self.low, 1 + self.high) * advantage
        objective, beyond = torch.minimum(plain, bounded), bounded < plain
        if self.dual is not None:
            floor = self.dual * advantage
            beyond = beyond | ((advantage < 0) & (objective < floor))
            objective = torch.where(advantage < 0, torch.maximum(objective, floor), objective)
        return objective, beyond


@dataclass(frozen=True)
class ClippedWeight(Surrogate):
    """A bounded importance weight on the plain score function; the bounds are of the ratio itself."""

    proportional: ClassVar[bool] = True
    low: float | None = None
    high: float = 5.0

    def __call__(self, ratio: Tensor, advantage: Tensor, logprobs: Tensor) -> tuple[Tensor, Tensor]:
        weight = ratio.detach().clamp(self.low, self.high)
        return weight * advantage * logprobs, weight != ratio.detach()


@dataclass(frozen=True)
class SoftGate(Surrogate):
    """A smooth gate in place of the clip; a gate that closes faster for negative advantages."""

    proportional: ClassVar[bool] = True
    positive: float = 1.0
    negative: float = 1.05

    def __call__(self, ratio: Tensor, advantage: Tensor, logprobs: Tensor) -> tuple[Tensor, Tensor]:
        steepness = torch.where(advantage > 0, self.positive, self.negative).to(ratio.dtype)
        gate = torch.sigmoid(steepness * (ratio - 1)) * 4 / steepness
        return gate * advantage, torch.zeros_like(ratio, dtype=torch.bool)


@dataclass(frozen=True)
class ProbabilityMask(Surrogate):
    """A mask by the difference of probabilities, not by their ratio; all tokens are held to the old policy a little."""

    bound: float = 0.2
    weight: float = 1e-3

    def __call__(self, ratio: Tensor, advantage: Tensor, logprobs: Tensor) -> tuple[Tensor, Tensor]:
        probability = logprobs.detach().exp()
        moved = probability - probability / ratio.detach()  # π − π_old
        beyond = ((advantage > 0) & (moved > self.bound)) | ((advantage < 0) & (moved < -self.bound))
        return (ratio * advantage).masked_fill(beyond, 0.0) - self.weight * ratio.log().square(), beyond
