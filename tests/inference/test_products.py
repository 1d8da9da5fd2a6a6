"""Which code multiplies: the same numbers by every way, the setting undone afterwards, and only made where it was measured."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import linear

from ingot.inference import products
from ingot.inference.few_rows.multiply import IS_ARM
from ingot.inference.products import fast_products, multiply_few
from ingot.model.linear import Linear
from ingot.model.team import openmp

needs_loops = pytest.mark.skipif(not IS_ARM or openmp() is None, reason="the loops are used on ARM with GNU's OpenMP")


def enabled() -> bool:
    return bool(torch.backends.mkldnn.enabled)


def test_the_setting_is_put_back_also_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "IS_ARM", True)
    before = enabled()
    with pytest.raises(KeyboardInterrupt), fast_products(torch.zeros(1)):
        assert not enabled()
        assert Linear.multiply is multiply_few
        raise KeyboardInterrupt
    assert enabled() == before
    assert Linear.multiply is linear
    assert Linear(32, 4).multiply is linear, "as a plain function, not a method"


@pytest.mark.parametrize(("arm", "dtype"), [(False, torch.float32), (True, torch.bfloat16)])
def test_others_are_left_alone(monkeypatch: pytest.MonkeyPatch, arm: bool, dtype: torch.dtype) -> None:
    monkeypatch.setattr(products, "IS_ARM", arm)
    before = enabled()
    with fast_products(torch.zeros(1, dtype=dtype)):
        assert enabled() == before
        assert Linear.multiply is linear


@needs_loops
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("rows", [2, 3, 4, 5, 7, 8, 9, 13, 21, 32])
@pytest.mark.parametrize(("inputs", "outputs"), [(576, 960), (96, 5), (1536, 578), (32, 4)])
def test_few_rows_equal_the_product_in_float64(rows: int, inputs: int, outputs: int, threads: int) -> None:
    """Within the bound of a sum of I products in float32 (Higham, Accuracy and Stability, 3.1): I·ε·Σ|x||w|."""
    draws = torch.Generator().manual_seed(rows * inputs + outputs)
    x, weight = torch.randn(rows, inputs, generator=draws), torch.randn(outputs, inputs, generator=draws)
    bias = torch.randn(outputs, generator=draws)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        found = multiply_few(x, weight, bias)
    finally:
        torch.set_num_threads(before)
    expected = linear(x.double(), weight.double(), bias.double())
    scale = linear(x.abs().double(), weight.abs().double(), bias.abs().double())
    assert bool(((found - expected).abs() <= (inputs // 4 + 6) * 2.0**-24 * scale).all())


@needs_loops
def test_a_row_depends_on_no_other_row() -> None:
    """The same bits for a row alone in a tile of two and among eight would be too much to ask; its values must agree."""
    draws = torch.Generator().manual_seed(1)
    x, weight = torch.randn(9, 64, generator=draws), torch.randn(12, 64, generator=draws)
    whole = multiply_few(x, weight, None)
    x[3] = torch.inf
    changed = multiply_few(x, weight, None)
    kept = [row for row in range(9) if row != 3]
    assert torch.equal(whole[kept], changed[kept])
    assert not bool(changed[3].isfinite().any())


@needs_loops
def test_shapes_and_layouts_that_the_loops_do_not_take() -> None:
    draws = torch.Generator().manual_seed(2)
    wide = torch.randn(4, 2, 40, generator=draws)
    for x, weight in (
        (wide[..., :33], torch.randn(8, 33, generator=draws)),  # no multiple of 32
        (wide[..., :32], torch.randn(32, 8, generator=draws).T),  # a transposed weight
        (wide[..., :32], torch.randn(8, 32, generator=draws)),  # rows that do not lie together
        (wide[..., :32], torch.randn(3, 32, generator=draws)),  # too few outputs
        (wide[:0, :, :32], torch.randn(8, 32, generator=draws)),
        (wide[..., :32].double(), torch.randn(8, 32, generator=draws).double()),
    ):
        torch.testing.assert_close(multiply_few(x, weight, None), x @ weight.T)


@needs_loops
def test_what_linear_refuses_and_what_autocast_decides() -> None:
    with torch.no_grad():
        with pytest.raises(RuntimeError):
            multiply_few(torch.ones(4, 64), torch.ones(8, 32), None)
        with torch.autocast("cpu", torch.bfloat16):
            assert multiply_few(torch.ones(4, 32), torch.ones(8, 32), None).dtype == torch.bfloat16


def test_gradients_are_those_of_linear() -> None:
    weight = torch.ones(8, 32, requires_grad=True)
    x = torch.full((4, 32), 2.0, requires_grad=True)
    multiply_few(x, weight, None).sum().backward()
    assert weight.grad is not None
    assert x.grad is not None
    assert torch.equal(weight.grad, torch.full((8, 32), 8.0))
    assert torch.equal(x.grad, torch.full((4, 32), 8.0))
