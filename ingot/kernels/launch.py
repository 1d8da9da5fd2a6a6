"""Helpers to launch a Triton kernel: whether Triton is installed, the device, block sizes, and programmatic dependent launch.

Programmatic dependent launch: a GPU of compute capability 9 or more can launch the next kernel of a stream while the last one
still runs. Its programs are scheduled, prefetch what does not depend on earlier kernels, and wait. In a decoding step, which
is hundreds of kernels of a few microseconds each, that hides the launches and some memory latency.

The rule for a kernel with DEPENDENT_LAUNCH (launch_kernel.py): every program waits before it reads anything that a kernel writes,
and before it writes anything at all. Then it sees what it would see without programmatic dependent launch.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

import torch
from torch import Tensor

HAS_TRITON = find_spec("triton") is not None
FLA = (0, 6)  # the versions of flash-linear-attention whose inner functions we call


def has_triton() -> bool:
    """Whether Triton is installed. A constant: compiled blocks ask, and the compiler cannot look for modules."""
    return HAS_TRITON


def _has_fla() -> bool:
    if not HAS_TRITON or find_spec("fla") is None:
        return False
    try:
        found = version("fla-core")
    except PackageNotFoundError:
        return False
    return tuple(int(part) for part in found.split(".")[:2]) == FLA


HAS_FLA = _has_fla()


def has_fla() -> bool:
    """Whether flash-linear-attention's kernels are installed (the extra `linear`), at a version that we know."""
    return HAS_FLA


def on_device_of(tensor: Tensor) -> AbstractContextManager[object]:
    """Kernels are launched on the tensor's device, which need not be the current one."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()


def power_of_two(width: int) -> int:
    """The side of a tile that holds `width`: tensor cores take 16 at least."""
    return max(16, 1 << (width - 1).bit_length())


def dependent_launch(tensor: Tensor) -> dict[str, bool]:
    """The launch options of a kernel with DEPENDENT_LAUNCH on this tensor's device."""
    if not (tensor.is_cuda and _has_dependent_launch(tensor.device.index)):
        return {"DEPENDENT_LAUNCH": False}
    return {"DEPENDENT_LAUNCH": True, "launch_pdl": True}


@cache
def _has_dependent_launch(device: int) -> bool:
    return torch.version.hip is None and torch.cuda.get_device_capability(device) >= (9, 0)
