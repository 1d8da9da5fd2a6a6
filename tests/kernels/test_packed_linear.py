"""Products with packed weights on the CPU: against float64, and against torch's own operator for int8 weights."""

from __future__ import annotations

import pytest
import torch

from ingot.kernels.quantised.packed_linear import packed_linear, packed_linear_definition
from tests.inference.quantised.cases import check_product, normal, packed_case


@pytest.mark.parametrize("bits", [8, 4])
def test_the_definition_and_the_bias(bits: int) -> None:
    x, packed = packed_case(bits, 5, 64, 20)
    bias = normal(20, seed=1)
    check_product(packed_linear_definition(x, packed, None), x, packed)
    for rows in (x, x.expand(60, 5, 64).reshape(2, 150, 64), x[:0]):  # few, many, none
        expected = packed_linear_definition(rows, packed, None) + bias
        torch.testing.assert_close(packed_linear(rows, packed, bias), expected, rtol=1e-5, atol=5e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_types(dtype: torch.dtype) -> None:
    x, packed = packed_case(8, 3, 64, 20)
    found = packed_linear(x.to(dtype), packed, None)
    assert found.dtype == dtype
    torch.testing.assert_close(found.float(), packed_linear(x, packed, None), rtol=2e-2, atol=2e-1)


def test_autocast_decides_the_type() -> None:
    x, packed = packed_case(8, 3, 64, 20)
    with torch.autocast("cpu", torch.bfloat16):
        assert packed_linear(x, packed, None).dtype == torch.bfloat16


def test_like_torchs_operator() -> None:
    x, packed = packed_case(8, 4, 256, 64)
    theirs = torch._weight_int8pack_mm(x, packed.integers, packed.scales)
    torch.testing.assert_close(packed_linear(x, packed, None), theirs, rtol=1e-4, atol=1e-3)
