"""Memory that calls have left behind is given back: a process is as large as its largest call, not as all together.

Freed arrays leave holes in the heap that the arrays of later calls do not fit into: without `malloc_trim` a process grows
for its first fifty calls or so, to twice the size. What is given back must be cleared by the system before it is had
again, which costs a tenth of the time if it is done after every call; so the heap may grow by KEPT_BYTES first.

No collection of cycles here: with a compiler's objects around it takes longer than many a call.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

KEPT_BYTES = 48_000_000
SIZES = Path("/proc/self/statm")  # of Linux

_least = 0  # resident bytes when memory was given back the last time


def release_memory() -> None:
    """Give back what is free, if much has come together since the last time."""
    global _least
    trim = malloc_trim()
    if trim is None or resident() < _least + KEPT_BYTES:
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
