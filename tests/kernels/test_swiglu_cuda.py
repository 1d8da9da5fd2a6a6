"""The kernel of the gated activation, values and gradients, against the formula in float64."""

from __future__ import annotations

import os

import pytest
import torch
from torch.nn.functional import silu

from ingot.kernels.launch import has_triton
from ingot.kernels.layer.swiglu import swiglu

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
pytestmark = pytest.mark.skipif(
    not (has_triton() and (INTERPRETED or torch.cuda.is_available())),
    reason="needs Triton and a CUDA device, or TRITON_INTERPRET=1",
)
DEVICE = "cuda" if torch.cuda.is_available() and not INTERPRETED else "cpu"


@pytest.mark.parametrize("shape", [(3, 5, 2 * 40), (2, 2 * 1024), (7, 2 * 1500), (0, 16)])
@pytest.mark.parametrize("dtype", [torch.float16] if INTERPRETED else [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("compiled", [False] if INTERPRETED else [False, True])
def test_values_and_gradients(shape: tuple[int, ...], dtype: torch.dtype, compiled: bool) -> None:
    from ingot.kernels.layer.swiglu_kernel import swiglu_forward

    generator = torch.Generator().manual_seed(0)
    projected = torch.randn(*shape, generator=generator).mul(3).to(dtype)
    gradient = torch.randn(*shape[:-1], shape[-1] // 2, generator=generator).to(dtype)
    exact = projected.double().requires_grad_()
    gate, up = exact.chunk(2, dim=-1)
    expected = silu(gate) * up
    expected.backward(gradient.double())
    given = projected.to(DEVICE).requires_grad_()
    found = (torch.compile(swiglu_forward) if compiled else swiglu_forward)(given)
    if not INTERPRETED:  # the predicate refuses a CPU
        with torch.no_grad():
            assert torch.equal(swiglu(given), found), "without gradients the kernel is launched as it is"
    found.backward(gradient.to(DEVICE))
    assert exact.grad is not None and given.grad is not None
    for ours, theirs in ((found, expected), (given.grad, exact.grad)):
        assert ours.dtype == dtype
        # one rounding of the exact value (half a step of the format), and float32 in between
        bound = torch.finfo(dtype).eps * theirs.abs() + 1e-6 + torch.finfo(dtype).tiny
        assert bool(((ours.detach().cpu().double() - theirs.detach()).abs() <= bound).all())
