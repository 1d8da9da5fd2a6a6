"""Sums of gathered rows, against the definition in float64.

On a GPU, or in Triton's interpreter on a CPU: TRITON_INTERPRET=1 python -m pytest tests/kernels/test_sum_rows.py
"""

from __future__ import annotations

import os

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from ingot.kernels.experts.sum_rows import kernel_allowed, sum_rows_definition

triton = pytest.importorskip("triton", reason="Triton is not installed")
if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("needs a CUDA device, or TRITON_INTERPRET=1", allow_module_level=True)

from ingot.kernels.experts.sum_rows_kernel import launch  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize("weighed", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize(("tokens", "active", "width"), [(5, 3, 1500), (1, 8, 1024), (4, 1, 7), (0, 2, 16)])
def test_like_the_definition(tokens: int, active: int, width: int, dtype: torch.dtype, weighed: bool) -> None:
    """Rows that are taken twice and rows that nobody takes; no token at all."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(20, width, generator=generator).to(dtype)
    places = torch.randint(20, (tokens, active), generator=generator)
    weights = torch.rand(tokens, active, generator=generator).to(dtype) if weighed else None
    expected = sum_rows_definition(rows.double(), places, None if weights is None else weights.double())
    found = launch(rows.to(DEVICE), places.to(DEVICE), None if weights is None else weights.to(DEVICE))
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.cpu().double(), expected, rtol=2e-6, atol=2e-6)


def test_only_what_it_names() -> None:
    with FakeTensorMode():
        rows = torch.empty(4, 8, device="cuda")
        assert not kernel_allowed(rows), "gradients"
        with torch.no_grad():
            assert kernel_allowed(rows) and kernel_allowed(rows.bfloat16())
            assert not kernel_allowed(rows.double())
            assert not kernel_allowed(rows.new_empty(4, 8, device="cpu"))
