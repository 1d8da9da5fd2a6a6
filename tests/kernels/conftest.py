"""Kernels run on a GPU where there is one, else in Triton's interpreter on the CPU."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Any

import pytest
import torch

if find_spec("triton") is not None and not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when triton is first imported

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


@pytest.fixture(autouse=True)
def loop_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton's interpreter makes loop bounds of arrays of one number by int(), which numpy 2.4 refuses."""
    if not INTERPRETED:
        return
    from triton.runtime import interpreter

    patch_tensor = interpreter._patch_lang_tensor

    def patch(tensor: Any, scope: Any) -> None:
        patch_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    monkeypatch.setattr(interpreter, "_patch_lang_tensor", patch)
