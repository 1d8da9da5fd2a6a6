"""Compiled loops that all threads of torch's own team run at once, on the CPU.

A second pool of threads beside torch's would wait for the same cores: torch's threads spin for a while after each operation.
torch's OpenMP library therefore runs the loops itself. A loop is a numba function of a task, a list of int64 numbers (addresses,
sizes, the bits of a float64); it asks for its share of the work (team_loops.py).
"""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor

WAIT = "ingot_wait"  # void f(), known to compiled code: until all threads of the team are here
THREAD_NUMBER, TEAM_SIZE = "ingot_thread_number", "ingot_team_size"  # int32 f()
SYMBOLS = {WAIT: "GOMP_barrier", THREAD_NUMBER: "omp_get_thread_num", TEAM_SIZE: "omp_get_num_threads"}


@cache
def openmp() -> Any:
    """The OpenMP library that torch itself uses, or None if it has not the entry points of GNU's."""
    from llvmlite import binding  # only where there are loops to compile

    library = ctypes.CDLL(torch._C.__file__)
    if not all(hasattr(library, name) for name in ("GOMP_parallel", *SYMBOLS.values())):
        return None
    library.GOMP_parallel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
    library.GOMP_parallel.restype = None
    for symbol, name in SYMBOLS.items():
        binding.add_symbol(symbol, ctypes.cast(getattr(library, name), ctypes.c_void_p).value)
    return library


def team_can(*tensors: Tensor) -> bool:
    """Whether these are tensors for the loops: float32 on a CPU, in a program that runs them rather than traces them."""
    fitting = all(each.dtype == torch.float32 and each.device.type == "cpu" and type(each) in PLAIN for each in tensors)
    return fitting and not torch.compiler.is_compiling() and openmp() is not None


PLAIN = (Tensor, torch.nn.Parameter)  # not a tensor that is divided over ranks, or made up


def run(loop: Any, *numbers: Tensor | int | float) -> None:
    """Let every thread run the loop. A tensor stands for its address, a float for its bits."""
    task = (ctypes.c_int64 * len(numbers))(*map(_as_integer, numbers))
    if _waiting.stages is None:
        openmp().GOMP_parallel(loop.address, task, torch.get_num_threads(), 0)
    else:
        _waiting.stages.append((loop.address, task, numbers))


class _Waiting(threading.local):
    # of the innermost `together` of this thread: loop, task, and the tensors, whose memory must stay until the loop has run
    stages: list[tuple[int, Any, tuple[Any, ...]]] | None = None


_waiting = _Waiting()


@contextmanager
def together() -> Iterator[None]:
    """What this thread runs inside, it runs at the end in one call, in order; nothing else may read or write its tensors before.

    Python runs faster before a product than between two: a product leaves nothing of it in the caches.
    """
    from ingot.model.team_loops import run_stages

    assert _waiting.stages is None
    _waiting.stages = []
    try:
        yield
        stages = _waiting.stages
    finally:
        _waiting.stages = None
    pairs = ((address, ctypes.addressof(task)) for address, task, _ in stages)
    run(run_stages, len(stages), *(number for pair in pairs for number in pair))


def _as_integer(number: Tensor | int | float) -> int:
    if isinstance(number, Tensor):
        return number.data_ptr()
    return bits(number) if isinstance(number, float) else number


def bits(number: float) -> int:
    """A float64 as a number of a task."""
    whole: int = struct.unpack("q", struct.pack("d", number))[0]
    return whole
