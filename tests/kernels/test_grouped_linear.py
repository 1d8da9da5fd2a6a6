"""The grouped product and its two operators: against products group by group, and against torch's own checks of operators."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ingot.kernels.experts.grouped_linear import grouped_linear, grouped_product, grouped_product_weights, has_kernel

SIZES = (3, 0, 5, 1)  # rows of each group; one has none


def inputs(dtype: torch.dtype, into: int, out: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(sum(SIZES), into, generator=generator).to(dtype).requires_grad_()
    weight = torch.randn(len(SIZES), out, into, generator=generator).to(dtype).requires_grad_()
    return rows, weight, torch.tensor(SIZES).cumsum(0).to(torch.int32)


@pytest.mark.parametrize(
    ("dtype", "out", "kernel"), [(torch.float32, 8, True), (torch.float32, 7, False), (torch.float64, 8, False)]
)
def test_every_way_is_the_product_group_by_group(dtype: torch.dtype, out: int, kernel: bool) -> None:
    """Called directly, and as the operator that compiled code calls; gradients by autograd and by its own formula."""
    rows, weight, ends = inputs(dtype, 4, out)
    assert has_kernel(rows, 4, out) == kernel
    parts = zip(rows.split(list(SIZES)), weight, strict=True)
    expected = torch.cat([part @ matrix.T for part, matrix in parts])
    upstream = torch.randn(expected.shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    exact = (expected, *torch.autograd.grad(expected, (rows, weight), upstream))
    for multiply in (grouped_linear, grouped_product):
        found = multiply(rows, weight, ends)
        for one, other in zip((found, *torch.autograd.grad(found, (rows, weight), upstream)), exact, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    assert not exact[2][1].any(), "a group without rows"


def test_torch_finds_nothing_wrong_with_the_operators() -> None:
    """Schemas, shapes without data, gradients and tracing with sizes that are not known."""
    rows, weight, ends = inputs(torch.float64, 4, 6)
    torch.library.opcheck(grouped_product, (rows, weight, ends))
    tests = ("test_schema", "test_faketensor")  # it is a gradient itself and has none
    torch.library.opcheck(
        grouped_product_weights, (rows.detach() @ weight[0].detach().T, rows.detach(), ends), test_utils=tests
    )
