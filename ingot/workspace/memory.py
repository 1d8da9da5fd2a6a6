"""Gives memory that a process has freed back to the system.

What is freed leaves holes in the heap that later arrays do not fit into: without `malloc_trim` a process that makes and drops
large things grows for the first fifty times or so, to twice the size. The system must clear returned memory before it hands it
out again, which costs a tenth of the time if it is done after every call; so the heap may grow by UNTRIMMED_BYTES first.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

UNTRIMMED_BYTES = 48_000_000
SIZES = Path("/proc/self/statm")  # of Linux

_least = 0  # resident bytes when memory was given back the last time


def release_memory() -> None:
    """Give free memory back to the system, if the process has grown by `UNTRIMMED_BYTES` since the last time."""
    global _least
    trim = malloc_trim()
    if trim is None or resident() < _least + UNTRIMMED_BYTES:
        return
    if "pyarrow" in sys.modules:
        sys.modules["pyarrow"].default_memory_pool().release_unused()
    trim(0)
    _least = resident()


@cache
def malloc_trim() -> Callable[[int], int] | None:
    """The function of the GNU C library; None where there is another library, or nothing that tells a process's size."""
    return getattr(ctypes.CDLL(None), "malloc_trim", None) if SIZES.exists() else None


def resident() -> int:
    """Bytes of memory that this process has now."""
    return int(SIZES.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
