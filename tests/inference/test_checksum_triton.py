"""The kernel's checksum equals the formula, in Triton's interpreter or on a GPU."""

from __future__ import annotations

import os

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed")
if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("needs a GPU, or TRITON_INTERPRET=1", allow_module_level=True)

from ingot.inference.checksum import FACTOR
from ingot.inference.checksum_triton import tensor_sum

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize("count", [1, 1023, 1024, 8 * 1024, 3 * 8 * 1024 + 17])
def test_like_the_formula(count: int) -> None:
    words = torch.randint(-(2**63), 2**63 - 1, (count,), generator=torch.Generator().manual_seed(count))
    total = 0
    for place, word in enumerate(words.tolist()):
        bits = word % 2**64
        row, column = divmod(place, 1024)
        factor = ((column * (FACTOR % 2**64)) | 1) % 2**64
        total += (bits ^ (bits >> 32)) * (2 * row + 1) * factor
    assert int(tensor_sum(words.to(DEVICE), FACTOR)) % 2**64 == total % 2**64
