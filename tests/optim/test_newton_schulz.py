"""Orthogonalisation against the singular value decomposition, the scalar polynomials, and torch's own iteration."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.optim._muon import _zeropower_via_newtonschulz

from ingot.kernels import symmetric_product
from ingot.optim import newton_schulz
from ingot.optim.newton_schulz import POLAR_EXPRESS, QUINTIC, Polynomial, orthogonalise, polynomials

SHAPES = [(8, 8), (12, 16), (16, 12), (8, 40), (40, 8), (1, 5)]


def with_spectrum(rows: int, columns: int, values: Tensor, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """A matrix U S Vᵀ, and U and Vᵀ."""
    generator = torch.Generator().manual_seed(seed)
    small = len(values)
    left, _ = torch.linalg.qr(torch.randn(rows, small, dtype=torch.float64, generator=generator))
    right, _ = torch.linalg.qr(torch.randn(columns, small, dtype=torch.float64, generator=generator))
    return left * values @ right.T, left, right.T


def scalar(values: Tensor, kind: str, iterations: int) -> Tensor:
    """What the iteration does to singular values, written for numbers."""
    values = values / values.norm() / (1.0 if kind == "quintic" else 1.01)
    for a, b, c in polynomials(kind, iterations):
        values = a * values + b * values**3 + c * values**5
    return values


@pytest.mark.parametrize("kind", ["quintic", "polar_express"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("iterations", [1, 3, 5, 9])
def test_singular_values_move_by_the_polynomials_and_vectors_stay(
    kind: str, shape: tuple[int, int], iterations: int
) -> None:
    values = torch.logspace(0, -2, min(shape), dtype=torch.float64)
    matrix, left, right = with_spectrum(*shape, values)
    found = orthogonalise(3e-5 * matrix[None], polynomials(kind, iterations), scale=0.7)[0]
    expected = left * (0.7 * scalar(values, kind, iterations)) @ right
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("shape", [(32, 40), (24, 96), (96, 24)])
def test_polar_express_converges_to_the_polar_factor(shape: tuple[int, int]) -> None:
    stack = torch.randn(3, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    left, _, right = torch.linalg.svd(stack, full_matrices=False)
    found = orthogonalise(stack, polynomials("polar_express", 9))
    torch.testing.assert_close(found, left @ right, rtol=0, atol=1e-7)
    classic = torch.linalg.svdvals(orthogonalise(stack, polynomials("quintic", 5)))
    assert classic.min() > 0.5 and classic.max() < 1.25  # it is not meant to converge


def best_quintic(low: float, high: float) -> Polynomial:
    """The odd polynomial of degree five nearest to 1 on [low, high], by Remez: its error has one size and four signs."""
    inner, error = (0.75 * low + 0.25 * high, 0.25 * low + 0.75 * high), float("inf")
    while True:
        points = torch.tensor([low, *inner, high], dtype=torch.float64)
        signs = torch.tensor([1.0, -1.0, 1.0, -1.0], dtype=torch.float64)
        system = torch.stack([points, points**3, points**5, signs], dim=1)
        a, b, c, now = torch.linalg.solve(system, torch.ones(4, dtype=torch.float64)).tolist()
        if abs(now - error) < 1e-15:
            return a, b, c
        root = (9 * b * b - 20 * a * c) ** 0.5  # a + 3 b x² + 5 c x⁴ vanishes at the two points within
        inner, error = (((-3 * b - root) / (10 * c)) ** 0.5, ((-3 * b + root) / (10 * c)) ** 0.5), now


def test_polar_express_is_the_best_composition_of_quintics() -> None:
    """From [10⁻³, 1] on, no polynomial steeper than the best one for [0.024, 1]: the paper's algorithm 1 and its numbers."""
    low, high = 1e-3, 1.0
    for place, expected in enumerate(POLAR_EXPRESS):
        cushion = 0.02407327424182761 * high
        a, b, c = best_quintic(max(low, cushion), high)
        ends = [a * x + b * x**3 + c * x**5 for x in (low, high)]
        centre = 2 / sum(ends) if cushion > low else 1.0
        torch.testing.assert_close((centre * a, centre * b, centre * c), expected, rtol=1e-9, atol=0, msg=str(place))
        low = centre * ends[0]
        high = 2 - low


def test_five_polar_iterations_beat_the_quintic() -> None:
    values = torch.logspace(0, -2.5, 64, dtype=torch.float64)
    matrix, left, right = with_spectrum(64, 64, values)
    errors = {
        kind: float((orthogonalise(matrix[None], polynomials(kind, 5))[0] - left @ right).norm())
        for kind in ("quintic", "polar_express")
    }
    assert errors["polar_express"] < 0.5 * errors["quintic"]


@pytest.mark.parametrize("shape", [(16, 24), (24, 16), (16, 64)])
def test_agrees_with_torch_within_its_bfloat16(shape: tuple[int, int]) -> None:
    matrix = torch.randn(*shape, generator=torch.Generator().manual_seed(2))
    theirs = _zeropower_via_newtonschulz(matrix, QUINTIC, 5, 1e-7).float()
    mine = orthogonalise(matrix[None], polynomials("quintic", 5))[0]
    assert float((mine - theirs).norm() / theirs.norm()) < 0.03


@pytest.mark.parametrize("shape", [(11, 11), (11, 17), (17, 11)])
def test_blocks_of_symmetric_products_change_nothing(shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    stack = torch.randn(2, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    steps = polynomials("polar_express", 5)
    whole = orthogonalise(stack, steps)
    monkeypatch.setattr(symmetric_product, "BLOCK", 4)  # eleven rows in blocks of four: the last one is shorter
    torch.testing.assert_close(orthogonalise(stack, steps), whole, rtol=0, atol=1e-12)


def test_zeros_stay_zeros_and_a_batch_is_its_matrices() -> None:
    stack = torch.randn(4, 6, 9, generator=torch.Generator().manual_seed(3))
    stack[1] = 0
    steps = polynomials("quintic", 5)
    found = orthogonalise(stack, steps)
    assert not found[1].any()
    for one, whole in zip(stack, found, strict=True):
        torch.testing.assert_close(orthogonalise(one[None], steps)[0], whole, rtol=0, atol=1e-6)


@pytest.mark.parametrize("spectrum", ["flat", "1/i", "1/i²", "one large"])
def test_sixteen_bits_lose_no_more_than_the_plain_iteration_in_bfloat16(spectrum: str) -> None:
    """The Gram form in float16, as it runs on CUDA, against K. Jordan's in bfloat16; both compared with float64."""
    place = torch.arange(1, 65, dtype=torch.float64)
    values = {
        "flat": torch.ones(64, dtype=torch.float64),
        "1/i": 1 / place,
        "1/i²": 1 / place**2,
        "one large": torch.where(place == 1, 1.0, 1e-3),
    }[spectrum]
    matrix, left, right = with_spectrum(64, 256, values)
    expected = left * scalar(values, "quintic", 5) @ right
    steps = polynomials("quintic", 5)
    unit = 8.0
    scaled = [(a, b / unit**2, c / unit**4) for a, b, c in steps]
    half = newton_schulz._iterate(
        (matrix * unit / matrix.norm()).half()[None], scaled, newton_schulz.RESTART, 1 / unit
    )[0]
    theirs = _zeropower_via_newtonschulz(matrix.float(), QUINTIC, 5, 1e-7)
    mine_error, their_error = (float((x.double() - expected).norm()) for x in (half, theirs))
    assert mine_error < their_error
