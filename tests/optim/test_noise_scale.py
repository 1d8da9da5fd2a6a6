"""The gradient noise scale of a linear regression, where tr Σ and |G|² are known."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from ingot.optim.noise_scale import NoiseScale, noise_and_signal

WIDTH, NOISE = 6, 0.7


def truth(error: Tensor) -> tuple[float, float]:
    """(tr Σ, |G|²) of a sample's gradient g = (x·e − n) x, with x ~ N(0, I) in D dimensions and n ~ N(0, σ²).

    G = E g = e. E|g|² = E (x·e)²|x|² + σ² E|x|² = (D + 2)|e|² + σ² D (Isserlis), and tr Σ = E|g|² − |G|².
    """
    signal = float(error.square().sum())
    return (WIDTH + 1) * signal + NOISE**2 * WIDTH, signal


def sample_gradients(error: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Gradients of ½(x·w − y)² by autograd, one row per sample; y = x·w* + n and w − w* = e."""
    x = torch.randn(count, WIDTH, dtype=torch.float64, generator=generator)
    noise = NOISE * torch.randn(count, dtype=torch.float64, generator=generator)
    weight = error.clone().expand(count, WIDTH).clone().requires_grad_()
    ((x * weight).sum(-1) - noise).square().div(2).sum().backward()
    assert weight.grad is not None
    return weight.grad


@pytest.mark.parametrize(("small", "parts"), [(4, 8), (1, 2), (16, 4)])
def test_both_estimates_are_unbiased(small: int, parts: int) -> None:
    """The mean over many steps lies within four standard errors of the analytic value, and those are small."""
    error = torch.linspace(0.2, 0.6, WIDTH, dtype=torch.float64)
    steps, generator = 20_000, torch.Generator().manual_seed(small)
    gradients = sample_gradients(error, steps * small * parts, generator).view(steps, parts, small, WIDTH).mean(2)
    of_parts, of_all = gradients.square().sum(-1).mean(1), gradients.mean(1).square().sum(-1)
    sizes = torch.tensor(float(small)), torch.tensor(float(small * parts))
    estimates = noise_and_signal(of_parts, sizes[0], of_all, sizes[1])
    for found, expected in zip(estimates, truth(error), strict=True):
        standard_error = float(found.std()) / math.sqrt(steps)
        assert standard_error < 0.05 * expected
        assert abs(float(found.mean()) - expected) < 4 * standard_error


def test_the_noise_scale_of_a_run() -> None:
    """Averages over 2000 steps of the trainer's two measurements: B_simple within 10 % (the statistical error is 3 %)."""
    error = torch.linspace(0.2, 0.6, WIDTH, dtype=torch.float64)
    scale, generator = NoiseScale(decay=0.999), torch.Generator().manual_seed(1)
    for _ in range(4000):
        parts = sample_gradients(error, 32, generator).view(8, 4, WIDTH).mean(1)
        scale.update(parts.square().sum(-1).mean(), 4.0, parts.mean(0).square().sum(), 32.0)
    noise, signal = truth(error)
    assert float(scale.value) == pytest.approx(noise / signal, rel=0.1)
    assert float(scale.noise) == pytest.approx(noise, rel=0.05)
    assert float(scale.signal) == pytest.approx(signal, rel=0.1)


def test_averages_are_unbiased_from_the_first_step_and_survive_a_checkpoint() -> None:
    scale = NoiseScale(decay=0.9)
    scale.update(torch.tensor(3.0), 2, torch.tensor(2.0), 8)
    assert float(scale.noise) == pytest.approx((3 - 2) / (1 / 2 - 1 / 8))
    assert float(scale.signal) == pytest.approx((8 * 2 - 2 * 3) / 6)
    other = NoiseScale(decay=0.9)
    other.restore(scale.state())
    for one in (scale, other):
        one.update(torch.tensor(5.0), 2, torch.tensor(1.0), 8)
    assert torch.equal(scale.averages, other.averages)
    weights = [0.9 * 0.1, 0.1]
    expected = (weights[0] * (3 - 2) + weights[1] * (5 - 1)) / sum(weights) / (1 / 2 - 1 / 8)
    assert float(scale.noise) == pytest.approx(expected)


def test_parts_of_different_sizes_count_by_their_harmonic_mean() -> None:
    """E mean_i |g_i|² = |G|² + tr Σ · mean_i 1/b_i: exact, not statistical."""
    noise, signal, sizes = 5.0, 2.0, (2.0, 3.0, 6.0)
    small = torch.tensor(sum(signal + noise / size for size in sizes) / 3)
    harmonic = torch.tensor(3 / sum(1 / size for size in sizes))
    whole = torch.tensor(sum(sizes))
    found = noise_and_signal(small, harmonic, signal + noise / whole, whole)
    assert [float(value) for value in found] == pytest.approx([noise, signal])
