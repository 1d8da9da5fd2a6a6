"""The products of training on an ARM CPU against torch's in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import linear
from torch.utils.flop_counter import FlopCounterMode

from ingot.model import team
from ingot.model.product import IS_ARM, matrix_product, multiply, product, product_can
from ingot.model.rooms import kept_rooms

pytestmark = pytest.mark.skipif(
    not IS_ARM or team.openmp() is None, reason="the tiles are made for ARM and for GNU's OpenMP library"
)


def close(found: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-5 * float(wanted.abs().max()))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("rows", "count", "columns"),
    [
        (4, 4, 16),
        (13, 7, 9),
        (300, 516, 33),
        (64, 1100, 40),
        (530, 260, 16),
        (50, 70, 300),
    ],  # also several blocks of rows and of the sum, and more panels than are packed at once
)
def test_products(rows: int, count: int, columns: int, threads: int) -> None:
    """Plain and transposed factors, written and added, at edges that are no whole tile."""
    a = torch.randn(rows, count, dtype=torch.float64)
    b = torch.randn(count, columns, dtype=torch.float64)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for left in (a.float(), a.float().T.contiguous().T):
            for right in (b.float(), b.float().T.contiguous().T):
                out = torch.full((rows, columns + 3), 2.0)
                close(product(left, right, out[:, :columns]), a @ b)
                close(product(left, right, out[:, :columns], adds=True), 2 * (a @ b))
                assert (out[:, columns:] == 2).all()
    finally:
        torch.set_num_threads(before)


def test_any_number_of_threads_gives_the_same_bits() -> None:
    a, b, before, found = torch.randn(100, 600), torch.randn(600, 80), torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(product(a, b, torch.empty(100, 80)))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])


def test_linear_and_its_gradients() -> None:
    exact = [torch.randn(2, 40, 128, dtype=torch.float64), torch.randn(256, 128, dtype=torch.float64), torch.randn(256)]
    given = [each.float().requires_grad_() for each in exact]
    exact = [each.detach().double().requires_grad_() for each in given]
    wanted = linear(*exact)
    with kept_rooms():
        assert product_can(80, 128, 256, given[0], given[1])
        found = multiply(*given)
    assert "Product" in type(found.grad_fn.next_functions[0][0]).__name__  # type: ignore[union-attr]
    close(found.detach(), wanted.detach())
    up = torch.randn(wanted.shape, dtype=torch.float64)
    gradients = torch.autograd.grad(found, given, up.float())
    for one, other in zip(gradients, torch.autograd.grad(wanted, exact, up), strict=True):
        close(one, other)


def test_what_is_no_number_stays_none() -> None:
    a, b = torch.randn(70, 64), torch.randn(64, 64)
    a[3, 5] = float("nan")
    bad = product(a, b, torch.empty(70, 64)).isnan()
    assert bad[3].all() and bad.sum() == 64


def test_who_multiplies() -> None:
    x, weight = torch.randn(64, 128, requires_grad=True), torch.randn(128, 128)
    assert not product_can(64, 128, 128, x, weight)  # no training run
    with kept_rooms():
        assert product_can(64, 128, 128, x, weight)
        assert not product_can(64, 128, 128, x, weight.double()) and not product_can(8, 128, 128, x, weight)
        with torch.autocast("cpu", torch.bfloat16):
            assert not product_can(64, 128, 128, x, weight)
        with FlopCounterMode(display=False):  # somebody watches operators
            assert not product_can(64, 128, 128, x, weight)
        with torch.no_grad():
            assert torch.equal(multiply(x, weight, None), linear(x, weight))
        doubles = x.detach().double(), weight.double()
        torch.testing.assert_close(matrix_product(*doubles, torch.empty_like(doubles[0])), doubles[0] @ doubles[1])
