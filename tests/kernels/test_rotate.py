"""Rotation of heads by the kernel, against complex numbers in float64.

On a GPU, or in Triton's interpreter on a CPU: TRITON_INTERPRET=1 python -m pytest tests/kernels/test_rotate.py
"""

from __future__ import annotations

import os

import pytest
import torch
from torch import Tensor

from ingot.kernels.layer.rotate import kernel_allowed, rotate, rotate_definition

triton = pytest.importorskip("triton", reason="Triton is not installed")
if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("needs a CUDA device, or TRITON_INTERPRET=1", allow_module_level=True)

from ingot.kernels.layer.rotate_kernel import launch  # noqa: E402

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
# rows, heads, tokens, width, rotated pairs, the first rotated channel
SHAPES = [
    (2, 5, 3, 24, 4, 16),
    (1, 1, 7, 16, 8, 0),
    (3, 64, 1, 128, 32, 0),
    (1, 16, 2, 192, 32, 128),
    (2, 3, 2, 20, 3, 5),
]


def exact(x: Tensor, angle_BTR: Tensor, pairing: str, begin: int) -> Tensor:
    """A pair of channels is a complex number."""
    x = x.double().cpu()
    part = x[..., begin : begin + 2 * angle_BTR.shape[-1]]
    pairs = part.unflatten(-1, (-1, 2)) if pairing == "interleaved" else part.unflatten(-1, (2, -1)).mT
    angle = angle_BTR[:, None].double()
    turned = torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * torch.polar(torch.ones_like(angle), angle))
    x[..., begin : begin + part.shape[-1]] = (turned if pairing == "interleaved" else turned.mT).flatten(-2)
    return x


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("pairing", ["halves", "interleaved"])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "-".join(map(str, shape)))
def test_equals_complex_numbers(shape: tuple[int, ...], pairing: str, dtype: torch.dtype) -> None:
    """Heads out of a joint projection, and angles that rows share or have for themselves."""
    rows, heads, tokens, width, pairs, begin = shape
    generator = torch.Generator().manual_seed(heads)
    projected = torch.randn(rows, tokens, heads * width + 3, generator=generator).to(DEVICE, dtype)
    x = projected[..., 3:].unflatten(-1, (heads, width)).transpose(1, 2)
    angle_BTR = 30 * torch.randn(1 if rows == 2 else rows, tokens, pairs, generator=generator)
    cos, sin = (each[:, None].float().to(DEVICE) for each in (angle_BTR.double().cos(), angle_BTR.double().sin()))
    wanted = exact(x, angle_BTR, pairing, begin)
    bound = 2 * torch.finfo(dtype).eps * wanted.abs().max()
    for found in (
        launch(x, cos, sin, pairing == "interleaved", begin),
        rotate_definition(x, cos, sin, pairing, begin),
    ):
        assert found.dtype == dtype and found.shape == x.shape
        assert (found.double().cpu() - wanted).abs().max() <= bound
    passed = launch(x, cos, sin, pairing == "interleaved", begin)[..., :begin]
    assert torch.equal(passed, x[..., :begin])


@pytest.mark.skipif(not ON_GPU, reason="the kernel is taken on a GPU only")
def test_only_without_gradients() -> None:
    x, angle = torch.randn(1, 2, 3, 8, device=DEVICE), torch.ones(1, 1, 3, 4, device=DEVICE)
    assert not kernel_allowed(x, angle)
    leaf = x.clone().requires_grad_()
    rotate(leaf, angle.cos(), angle.sin(), "halves").sum().backward()
    assert leaf.grad is not None
    with torch.no_grad():
        assert kernel_allowed(x, angle) and not kernel_allowed(x.double(), angle)
