"""The kernel that stores new tokens equals the layer's own path, in Triton's interpreter or on a GPU."""

from __future__ import annotations

import os

import pytest
import torch

triton = pytest.importorskip("triton", reason="Triton is not installed")
if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("needs a GPU, or TRITON_INTERPRET=1", allow_module_level=True)

from ingot.model.mixers import attention  # noqa: E402
from ingot.model.mixers.store_triton import store_triton  # noqa: E402
from ingot.model.norm import NormConfig, RmsNorm  # noqa: E402
from ingot.model.norm_triton import add_norm  # noqa: E402
from tests.model.mixers.store_cases import KINDS, check_store  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize("zero_centred", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16] if DEVICE == "cuda" else [torch.float32])
@pytest.mark.parametrize("kind", KINDS)
def test_queries_keys_and_values(
    kind: str, dtype: torch.dtype, zero_centred: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "store", store_triton)  # also in the interpreter, where tensors are on the CPU
    check_store(kind, zero_centred, DEVICE, dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16] if DEVICE == "cuda" else [torch.float32])
@pytest.mark.parametrize("zero_centred", [False, True])
@torch.no_grad()
def test_sum_and_norm(dtype: torch.dtype, zero_centred: bool) -> None:
    norm = RmsNorm(50, NormConfig(zero_centred=zero_centred, cast="after_gain" if zero_centred else "before_gain"))
    norm = norm.to(DEVICE, dtype)
    assert norm.gain is not None
    torch.nn.init.normal_(norm.gain)
    x, y = torch.randn(2, 3, 7, 50, device=DEVICE, dtype=dtype)
    total, normed = add_norm(x, y, norm)
    assert torch.equal(total, x + y)
    torch.testing.assert_close(normed, norm(x + y), atol=2e-6 if dtype == torch.float32 else 0.02, rtol=1e-5)
    assert add_norm(x, None, norm)[0] is x
