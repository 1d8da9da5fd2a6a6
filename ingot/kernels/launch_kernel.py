"""Triton functions for kernels with programmatic dependent launch: start the next kernel, wait, prefetch (launch.py)."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import cuda


@triton.jit
def launch_dependents():
    """Let the next kernel start as soon as all programs of this one have."""
    cuda.gdc_launch_dependents()


@triton.jit
def wait():
    """Wait until the earlier kernels have ended and their results can be read."""
    cuda.gdc_wait()


@triton.jit
def prefetch(address):
    """Ask for the cache lines around these addresses to be brought to the second-level cache. Reads nothing, so it may come
    before `wait`."""
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; mov.u32 $0, 0;", "=r,l", [address.to(tl.int64)], dtype=tl.int32, is_pure=False, pack=1
    )
