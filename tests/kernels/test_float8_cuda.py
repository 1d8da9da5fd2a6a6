"""Products in float8 on the matrix units, against the same rounding multiplied out on the CPU."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ingot.kernels.quantised.float8 import Scaling, cast_both, product, scale_of
from ingot.train.float8 import BACKWARD, FORWARD, multiply_by_row, multiply_by_tensor

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() < (8, 9),
    reason="needs a CUDA device with float8 products (Ada, Hopper or newer)",
)

ROUNDED = 2.0**-8  # half a step of bfloat16, in which results come out


def normal(*size: int, seed: int) -> Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed)).to(torch.bfloat16)


def relative(found: Tensor, expected: Tensor) -> float:
    expected = expected.double()
    return float((found.cpu().double() - expected).norm() / expected.norm())


@pytest.mark.parametrize("scaling", ["tensor", "row"])
@pytest.mark.parametrize("left", [FORWARD, BACKWARD])
@pytest.mark.parametrize("fast", [False, True])
def test_the_kernel_multiplies_what_the_emulation_multiplies(scaling: Scaling, left: torch.dtype, fast: bool) -> None:
    """`fast` sums lose bits, and so do all sums of the kernel with a scale a row: a few roundings of the result."""
    one, two = normal(256, 512, seed=0), normal(128, 512, seed=1)
    expected = product(one, two, scaling, left, FORWARD, fast=False)
    found = product(one.cuda(), two.cuda(), scaling, left, FORWARD, fast=fast)
    assert found.dtype == torch.bfloat16
    assert relative(found, expected) < (4 * ROUNDED if fast or scaling == "row" else ROUNDED)


@pytest.mark.parametrize("multiply", [multiply_by_tensor, multiply_by_row])
@pytest.mark.parametrize("compiled", [False, True])
def test_a_layer_and_its_gradients(multiply: object, compiled: bool) -> None:
    """Under autocast, with a bias, eager and compiled."""
    assert callable(multiply)
    results: dict[str, list[Tensor]] = {}
    for device in ("cpu", "cuda"):
        x = normal(4, 64, 256, seed=2).float().to(device).requires_grad_()
        weight = (normal(512, 256, seed=3).float() * 0.05).to(device).requires_grad_()
        bias = normal(512, seed=4).float().to(device).requires_grad_()
        run = torch.compile(multiply) if compiled and device == "cuda" else multiply
        with torch.autocast(device, torch.bfloat16):
            out = run(x, weight, bias)
        out.backward(normal(4, 64, 512, seed=5).to(device) * 1e-3)
        assert x.grad is not None and weight.grad is not None and bias.grad is not None
        results[device] = [out.detach(), x.grad, weight.grad, bias.grad]
    for found, expected in zip(results["cuda"], results["cpu"], strict=True):
        assert relative(found, expected) < 6 * ROUNDED


def test_outliers_on_the_device() -> None:
    """A scale per row keeps the other tokens; one for all loses them, as on the CPU."""
    x, weight = normal(64, 256, seed=6), normal(128, 256, seed=7)
    x[3] *= 1e6
    exact = x.double() @ weight.double().T
    quiet = [row for row in range(64) if row != 3]
    assert relative(multiply_by_row(x.cuda(), weight.cuda(), None)[quiet], exact[quiet]) < 0.05
    assert relative(multiply_by_tensor(x.cuda(), weight.cuda(), None)[quiet], exact[quiet]) > 0.9


@pytest.mark.parametrize("shape", [(128, 256), (64, 80), (1000, 48), (16, 4096)])
@pytest.mark.parametrize("dtype", [FORWARD, BACKWARD])
@pytest.mark.parametrize("size", [1e-9, 1.0, 1e5])
def test_rounding_both_ways_equals_the_reference_bit_by_bit(
    shape: tuple[int, int], dtype: torch.dtype, size: float
) -> None:
    """Also of a transposed view, which is what a gradient may be."""
    x = (normal(*shape, seed=8).float() * size).to(torch.bfloat16)
    for here in (x, x.T):
        scale = scale_of(here, dtype)
        for found, expected in zip(
            cast_both(here.cuda(), scale.cuda(), dtype), cast_both(here, scale, dtype), strict=True
        ):
            assert found.is_contiguous()
            assert torch.equal(found.cpu().view(torch.uint8), expected.view(torch.uint8))
