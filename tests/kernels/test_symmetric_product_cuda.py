"""The symmetric product on a CUDA device, against float64."""

from __future__ import annotations

import pytest
import torch

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.parametrize(("size", "depth"), [(512, 512), (640, 1000), (1000, 72), (2048, 256)])
@pytest.mark.parametrize("tall", [False, True])
@pytest.mark.parametrize("with_plus", [False, True])
def test_the_symmetric_kernel(size: int, depth: int, tall: bool, with_plus: bool) -> None:
    """Against float64, of sizes that fill no tile; and symmetric to the bit."""
    from ingot.kernels.symmetric_product_kernel import symmetric_product_triton

    generator = torch.Generator().manual_seed(1)
    x = torch.randn(3, size, depth, generator=generator).half().cuda()
    left = x.mT.contiguous().mT if tall else x
    plus = torch.randn(3, size, size, generator=generator).half().cuda()
    plus = plus + plus.mT
    found = symmetric_product_triton(left, left.mT, plus if with_plus else None, beta=-1.5, alpha=0.01)
    expected = 0.01 * (x.double() @ x.double().mT) - (1.5 * plus.double() if with_plus else 0)
    assert torch.equal(found, found.mT)
    assert float((found - expected).norm() / expected.norm()) < 5e-4
