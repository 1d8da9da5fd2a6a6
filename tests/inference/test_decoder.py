"""What decoding switches off in torch while a step runs on an ARM processor is as before afterwards."""

from __future__ import annotations

import platform

import pytest
import torch

from ingot.inference.decoder import _products_of_few_rows

KEEP = (None, None, None)


def test_switches_of_the_process_are_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the precision of float32 products, which a user may have chosen, and after an error."""
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    *_, precision = torch.backends.mkldnn.set_flags(None, None, None, "bf16")
    try:
        before = torch.backends.mkldnn.set_flags(None, *KEEP)
        with pytest.raises(ZeroDivisionError), _products_of_few_rows(torch.zeros(1)):
            assert torch.backends.mkldnn.set_flags(None, *KEEP) == (False, *before[1:])
            raise ZeroDivisionError
        assert torch.backends.mkldnn.set_flags(None, *KEEP) == before
        with _products_of_few_rows(torch.zeros(1, dtype=torch.bfloat16)):
            assert torch.backends.mkldnn.set_flags(None, *KEEP) == before
    finally:
        torch.backends.mkldnn.set_flags(None, None, None, precision)
