"""numba: what loops for torch's team of threads share (team.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numba
import numpy as np
from numba import types

from ingot.data import native
from ingot.model.loops import ZERO, Array, contracted, pointer
from ingot.model.team import TEAM_SIZE, THREAD_NUMBER, openmp

openmp()  # compiled code below refers to its functions
_thread_number = types.ExternalFunction(THREAD_NUMBER, types.int32())
_team_size = types.ExternalFunction(TEAM_SIZE, types.int32())

Task = Any  # int64 numbers


def for_team(function: Callable[[Task], None]) -> Any:
    """Compile void f(int64 *task)."""
    return cast(Any, numba.cfunc(types.void(types.CPointer(types.int64)), cache=True, error_model="numpy")(function))


@contracted
def thread_number() -> np.int64:
    """Which thread of the team this is."""
    return np.int64(_thread_number())


@contracted
def share(count: int) -> tuple[np.int64, np.int64]:
    """The first of the calling thread's share of `count` things, and the first after it."""
    thread, threads = np.int64(_thread_number()), np.int64(_team_size())
    return count * thread // threads, count * (thread + 1) // threads


@contracted
def as_float(bits: int) -> np.float32:
    """A float of a task."""
    return np.float32(np.int64(bits).view(np.float64))


@native.inline
def matrix(address: int, rows: int, columns: int) -> Array:
    """The floats at an address."""
    return numba.carray(pointer(address, ZERO), (rows, columns))


@native.inline
def vector(address: int, size: int) -> Array:
    """The floats at an address."""
    return numba.carray(pointer(address, ZERO), (size,))
