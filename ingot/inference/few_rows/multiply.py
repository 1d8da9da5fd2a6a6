"""y = x Wᵀ for a few rows x on an ARM CPU, with W in float32, int8 or int4: every weight is read once, as it lies.

In a decoding step every weight is used for a handful of rows. Libraries are made for many rows: they first rearrange W, at
the cost of another pass over the memory. The loops here (tiles.py) do not.

The threads are torch's own: its OpenMP library runs the compiled loops, so that no second team waits for the same cores.
"""

from __future__ import annotations

import ctypes
import platform
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ingot.inference.few_rows.task import OUTPUTS, STEP, TASK, TEAM_SIZE, THREAD_NUMBER, Kind

Task = ctypes.c_int64 * len(TASK)
IS_ARM = platform.machine().lower() in ("aarch64", "arm64")


@cache
def openmp() -> Any:
    """The OpenMP library that torch itself uses, or None if it has not the entry points of GNU's."""
    from llvmlite import binding  # only where there are loops to compile

    library = ctypes.CDLL(torch._C.__file__)
    if not all(hasattr(library, name) for name in ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")):
        return None
    library.GOMP_parallel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
    library.GOMP_parallel.restype = None
    for name, function in ((THREAD_NUMBER, library.omp_get_thread_num), (TEAM_SIZE, library.omp_get_num_threads)):
        binding.add_symbol(name, ctypes.cast(function, ctypes.c_void_p).value)
    return library


@cache
def loops(kind: Kind) -> tuple[Any, int]:
    """The compiled loops; made once in a process, in about a third of a second."""
    from ingot.inference.few_rows.tiles import compile_loops

    return compile_loops(kind)


def can_multiply(x: Tensor, inputs: int, outputs: int) -> bool:
    """Whether the loops take these rows on this machine."""
    return (
        IS_ARM
        and x.dtype == torch.float32
        and x.device.type == "cpu"
        and inputs % (2 * STEP) == 0
        and outputs >= OUTPUTS
        and not (torch.is_grad_enabled() and x.requires_grad)
        and openmp() is not None
    )


def multiply(
    kind: Kind, x: Tensor, weight: Tensor, scales: Tensor | None = None, minimums: Tensor | None = None
) -> Tensor:
    """x Wᵀ [..., O] of x [..., I]; scales [O] for int8, scales and minimums [O, groups] for int4, all contiguous."""
    x, outputs, inputs = x.contiguous(), weight.shape[0], x.shape[-1]
    out = x.new_empty(*x.shape[:-1], outputs)
    group = inputs if scales is None or scales.dim() == 1 else inputs // scales.shape[1]
    task = Task(
        x.data_ptr(),
        weight.data_ptr(),
        0 if scales is None else scales.data_ptr(),
        0 if minimums is None else minimums.data_ptr(),
        out.data_ptr(),
        x.numel() // inputs,
        inputs,
        outputs,
        (group // 2).bit_length() - 1,
    )
    openmp().GOMP_parallel(loops(kind)[1], task, torch.get_num_threads(), 0)
    return out
