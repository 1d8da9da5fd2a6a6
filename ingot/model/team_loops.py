"""numba: what loops for torch's team of threads share (team.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ingot.data import native
from ingot.data.kernel_cache import kept
from ingot.model.loops import ZERO, Array, contracted, pointer
from ingot.model.team import TEAM_SIZE, THREAD_NUMBER, WAIT, openmp

openmp()  # compiled code below refers to its functions
_thread_number = types.ExternalFunction(THREAD_NUMBER, types.int32())
_team_size = types.ExternalFunction(TEAM_SIZE, types.int32())
wait = types.ExternalFunction(WAIT, types.void())  # until all threads of the team are here

Task = Any  # int64 numbers


def for_team(function: Callable[[Task], None]) -> Any:
    """Compile void f(int64 *task)."""
    with kept(function):
        return cast(
            Any, numba.cfunc(types.void(types.CPointer(types.int64)), cache=True, error_model="numpy")(function)
        )


def _call(typing: Any, loop: Any, task: Any) -> Any:
    """Call a loop with a task, both given by their addresses."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        loop, task = arguments
        numbers = ir.IntType(64).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [numbers])
        builder.call(builder.inttoptr(loop, kind.as_pointer()), [builder.inttoptr(task, numbers)])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


call = intrinsic(_call)


@for_team
def run_stages(task: Task) -> None:
    """How many loops, then each with its task: one after the other, all threads together."""
    for stage in range(task[0]):
        call(task[1 + 2 * stage], task[2 + 2 * stage])
        wait()


@contracted
def thread_number() -> np.int64:
    """Which thread of the team this is."""
    return np.int64(_thread_number())


@contracted
def team_size() -> np.int64:
    """How many threads the team has."""
    return np.int64(_team_size())


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
