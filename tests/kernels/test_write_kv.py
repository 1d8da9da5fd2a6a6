"""The kernel that writes new tokens' keys and values equals the definition, in Triton's interpreter or on a GPU."""

from __future__ import annotations

import os

import pytest
import torch

triton = pytest.importorskip("triton", reason="Triton is not installed")
if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("needs a GPU, or TRITON_INTERPRET=1", allow_module_level=True)

from tests.kernels.write_kv_cases import KINDS, check_write  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize("zero_centred", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16] if DEVICE == "cuda" else [torch.float32])
@pytest.mark.parametrize("kind", KINDS)
def test_queries_keys_and_values(kind: str, dtype: torch.dtype, zero_centred: bool) -> None:
    check_write(kind, zero_centred, DEVICE, dtype)
