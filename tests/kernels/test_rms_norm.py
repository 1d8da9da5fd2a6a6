"""Residual sum and norm in one kernel, for sampling, against torch's own operations in float64.

On a GPU, or in Triton's interpreter on a CPU: TRITON_INTERPRET=1 python -m pytest tests/kernels/test_rms_norm.py
"""

from __future__ import annotations

import os

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import rms_norm

from ingot.kernels.layer import rms_norm as operation
from ingot.model.norm import NormConfig, RmsNorm

triton = pytest.importorskip("triton", reason="Triton is not installed")
if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("needs a CUDA device, or TRITON_INTERPRET=1", allow_module_level=True)

from ingot.kernels.layer.rms_norm_kernel import launch  # noqa: E402
from tests.slow import first_fast  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
EPSILON = 1e-5


def close(found: Tensor, exact: Tensor, steps: float) -> None:
    """Within `steps` roundings of the largest value of a row, and those of float32."""
    bound = steps * exact.abs().amax(-1, keepdim=True) + 1e-6 if exact.numel() else exact
    assert bool(((found.cpu().double() - exact).abs() <= bound).all())


@pytest.mark.parametrize("adds", [False, True], ids=["alone", "sum"])
@pytest.mark.parametrize("cast", ["before_gain", "after_gain"])
@pytest.mark.parametrize("zero_centred", [False, True])
@pytest.mark.parametrize("shape", [(5, 64), (2, 3, 7, 48), (0, 32)])
@pytest.mark.parametrize("dtype", first_fast([torch.bfloat16, torch.float32, torch.float16], keep=2))
@torch.no_grad()
def test_values(shape: tuple[int, ...], dtype: torch.dtype, zero_centred: bool, cast: str, adds: bool) -> None:
    generator = torch.Generator().manual_seed(sum(shape))
    x, y = (torch.randn(shape, generator=generator).to(dtype) for _ in range(2))
    norm = RmsNorm(shape[-1], NormConfig(epsilon=EPSILON, cast=cast, zero_centred=zero_centred))
    assert norm.gain is not None
    norm.gain.add_(0.3 * torch.randn(shape[-1], generator=generator))
    used = norm.used_gain()
    assert used is not None
    total, normed = launch(x.to(DEVICE), y.to(DEVICE) if adds else None, used.to(DEVICE), EPSILON, norm.round_first)
    assert total.dtype == normed.dtype == dtype and total.shape == normed.shape == x.shape

    eps = torch.finfo(dtype).eps
    close(total, x.double() + y.double() if adds else x.double(), eps)
    wanted = rms_norm(total.cpu().double(), shape[-1:], used.double(), EPSILON)  # of the rounded sum
    roundings = 3 if cast == "before_gain" else 1  # of the gain, the quotient and the product
    close(normed, wanted, roundings * eps)


def test_training_and_compiled_code_run_the_definition() -> None:
    """The compiler sees torch's own operations, and so does autograd."""
    with FakeTensorMode():
        x, gain = torch.empty(4, 64, dtype=torch.bfloat16, device="cuda"), torch.empty(64, device="cuda")
        assert not operation.kernel_allowed(x, gain)
        with torch.no_grad():
            assert operation.kernel_allowed(x, gain)
            assert not operation.kernel_allowed(x, None)
            assert not operation.kernel_allowed(x.double(), gain)
            assert not operation.kernel_allowed(x.new_empty(4, operation.WIDEST + 1), gain)
