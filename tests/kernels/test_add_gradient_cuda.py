"""Gradients of two dtypes added on a CUDA device, against torch's sum."""

from __future__ import annotations

import pytest
import torch

from ingot.kernels.add_gradient import add_gradient

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.parametrize("size", [1, 4095, 4096, 100_003])
def test_a_gradient_in_16_bits_is_added(size: int) -> None:
    part = torch.randn(size, device="cuda", dtype=torch.bfloat16)
    total = add_gradient(None, part, torch.float32)
    assert total.dtype == torch.float32 and torch.equal(total, part.float())
    before = torch.randn(size, device="cuda")
    assert torch.equal(add_gradient(before.clone(), part, torch.float32), before + part.float())
