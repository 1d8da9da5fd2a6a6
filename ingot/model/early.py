"""Kernels that start before the one before them has ended.

A GPU of compute capability 9 or more can launch the next kernel of a stream while the last one runs ("programmatic dependent
launch"): its programs take their places, fetch what does not depend on the kernels before, and wait. In a decoding step, which
is hundreds of kernels of a few microseconds each, that hides the launches and some of the memory's latency.

The rule for a kernel with EARLY (early_kernel.py): every program waits before it reads anything that a kernel writes, and before
it writes anything at all. Then what it sees is what it would see if it had started late.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor


def early(tensor: Tensor) -> dict[str, bool]:
    """What a kernel on this tensor's device is launched with, so that it starts early where it can."""
    if not (tensor.is_cuda and _can(tensor.device.index)):
        return {"EARLY": False}
    return {"EARLY": True, "launch_pdl": True}


@cache
def _can(device: int) -> bool:
    return torch.version.hip is None and torch.cuda.get_device_capability(device) >= (9, 0)
