"""The gradient noise scale: up to which batch size more tokens per step pay (McCandlish et al., arXiv 1812.06162, appendix A.1).

A gradient over b samples is G + noise of covariance Σ/b, so E|g_b|² = |G|² + tr Σ / b. Two batch sizes, small b and big B, give
two equations, hence unbiased estimates of both unknowns from two squared norms:

    |G|²  ≈  (B |g_B|² − b |g_b|²) / (B − b)
    tr Σ  ≈  (|g_b|² − |g_B|²) / (1/b − 1/B)
    B_simple  =  tr Σ / |G|²

At batches far below B_simple a batch twice as large is nearly worth two steps; far above it buys nearly nothing. A single
estimate is very noisy (|G|² may even be negative) and a ratio of noisy numbers is biased, so numerator and denominator are
averaged first, each with the same exponential weights, and divided last.

The two gradients may come from one step: its whole gradient, and that of its first micro-batch, which lies in `.grad` before
the second one is added (multiplied with the step's tokens over its own tokens, if the loss is a mean over the step); or the
mean of |g_b|² over all micro-batches or ranks, which is less noisy. If those differ in size, b is their harmonic mean.
The result is in the unit of the sizes: tokens give tokens.

Everything is a tensor on the device of the norms: the host never waits.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


def noise_and_signal(small: Tensor, small_size: Tensor, big: Tensor, big_size: Tensor) -> tuple[Tensor, Tensor]:
    """Unbiased (tr Σ, |G|²) from squared gradient norms at two batch sizes."""
    noise = (small - big) / (1 / small_size - 1 / big_size)
    signal = (big_size * big - small_size * small) / (big_size - small_size)
    return noise, signal


class NoiseScale:
    """Exponential averages of both estimates over the steps; `decay` 0.99 averages over about a hundred."""

    def __init__(self, device: torch.device | str = "cpu", decay: float = 0.99) -> None:
        self.decay = decay
        self.averages = torch.zeros(3, dtype=torch.float64, device=device)  # of tr Σ, of |G|², and of one

    def update(
        self,
        small_norm_squared: Tensor,
        small_size: Tensor | float,
        big_norm_squared: Tensor,
        big_size: Tensor | float,
    ) -> None:
        """Add a step: |g|² at (the mean over) the small batches and at the big one, and their sizes, big > small."""
        given = (small_norm_squared, small_size, big_norm_squared, big_size)
        small, size, big, whole = (
            torch.as_tensor(value, dtype=torch.float64).to(self.averages.device, non_blocking=True) for value in given
        )
        new = torch.stack([*noise_and_signal(small, size, big, whole), torch.ones_like(small)])
        self.averages.lerp_(new, 1 - self.decay)

    @property
    def noise(self) -> Tensor:
        """tr Σ."""
        return self.averages[0] / self.averages[2]

    @property
    def signal(self) -> Tensor:
        """|G|²."""
        return self.averages[1] / self.averages[2]

    @property
    def value(self) -> Tensor:
        """B_simple; meaningless while |G|² is not yet positive."""
        return self.averages[0] / self.averages[1]

    def state(self) -> dict[str, list[float]]:
        """The state for a checkpoint, as plain JSON."""
        return {"averages": self.averages.tolist()}

    def restore(self, state: Mapping[str, list[float]]) -> None:
        """Go on from `state`."""
        self.averages.copy_(torch.tensor(state["averages"], dtype=torch.float64))
