"""Compiled loops that all threads of torch's own team run at once, on the CPU.

A second pool of threads beside torch's would wait for the same cores: torch's threads spin for a while after each operation.
torch's OpenMP library therefore runs the loops itself. A loop is a numba function of a task, a list of int64 numbers (addresses,
sizes, the bits of a float64); it asks for its share of the work (team_loops.py).
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from ingot.model.rooms import new_room

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


LINE = 16  # floats of a line of the cache
PLAIN = (Tensor, torch.nn.Parameter)  # not a tensor that is divided over ranks, or made up


@dataclass(frozen=True)
class Work:
    """So many floats of working memory, which are free again when the loop has run."""

    floats: int


@dataclass(frozen=True)
class Place:
    """So many floats after the beginning of the tensor that a plan knows by this name (team_plan.py)."""

    name: str
    floats: int = 0

    def after(self, floats: int) -> Place:
        """The place so many floats further on."""
        return Place(self.name, self.floats + floats)

    def side_by_side(self, sizes: Sequence[int]) -> list[Place]:
        """From here on places for so many floats each; a line begins where each of them does."""
        starts = accumulate((-(-size // LINE) * LINE for size in sizes[:-1]), initial=0)
        return [self.after(start) for start in starts]


Memory = Tensor | Place
Number = Memory | Work | int | float
Stage = tuple[Any, *tuple[Number, ...]]  # a loop, and the numbers of its task


def run(loop: Any, *numbers: Number) -> None:
    """Let every thread run the loop. A tensor stands for its address, a float for its bits; only plans know places."""
    given = [new_room(each.floats) if isinstance(each, Work) else each for each in numbers]
    task = (ctypes.c_int64 * len(given))(*map(_as_integer, given))
    openmp().GOMP_parallel(loop.address, task, torch.get_num_threads(), 0)


def _as_integer(number: Number) -> int:
    assert not isinstance(number, Place | Work)
    if isinstance(number, Tensor):
        return number.data_ptr()
    return bits(number) if isinstance(number, float) else number


def bits(number: float) -> int:
    """A float64 as a number of a task."""
    whole: int = struct.unpack("q", struct.pack("d", number))[0]
    return whole
