"""A list of stages that all of torch's threads go through together, handed over in one call.

A step of decoding is hundreds of operations of some ten microseconds: starting each of them from Python takes as long as what
they do. A plan has them all:

    function, n, n numbers,   function, n, n numbers,   …   0          (int64)

Every thread calls void function(int64 *numbers, int64 thread, int64 threads) of a stage, which does a part of the work, and waits
for the others before it goes on to the next. The threads are those of torch's own OpenMP library: no second team waits for the
same cores. The team may be smaller than was asked for (OMP_DYNAMIC, OMP_THREAD_LIMIT).
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

from ingot.model.team import TEAM_SIZE, THREAD_NUMBER, WAIT, openmp

Stage = tuple[int, Sequence[int]]  # the address of a function, and its numbers


def run(stages: Sequence[Stage]) -> None:
    """Go through all stages, with as many threads as torch uses."""
    numbers: list[int] = []
    for function, own in stages:
        numbers += (function, len(own), *own)
    plan = array("q", (*numbers, 0))
    openmp().GOMP_parallel(_walk()[1], plan.buffer_info()[0], torch.get_num_threads(), 0)


@cache
def _walk() -> tuple[Any, int]:
    """void f(int64 *plan), compiled; every thread of the team runs it."""
    from llvmlite import ir

    from ingot.inference.few_rows.language import INT, LONG, call, compiled, long

    module, numbers = ir.Module(), LONG.as_pointer()
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [numbers]), "walk")
    before, loop, stage, after = (function.append_basic_block() for _ in range(4))
    build = ir.IRBuilder(before)
    thread, threads = (build.zext(call(build, name, INT), LONG) for name in (THREAD_NUMBER, TEAM_SIZE))
    build.branch(loop)
    build.position_at_end(loop)
    at = build.phi(numbers)
    at.add_incoming(function.args[0], before)
    address = build.load(at)
    build.cbranch(build.icmp_signed("==", address, long(0)), after, stage)
    build.position_at_end(stage)
    own, count = build.gep(at, [long(2)]), build.load(build.gep(at, [long(1)]))
    kind = ir.FunctionType(ir.VoidType(), [numbers, LONG, LONG])
    build.call(build.inttoptr(address, kind.as_pointer()), [own, thread, threads])
    call(build, WAIT, ir.VoidType())
    at.add_incoming(build.gep(own, [count]), stage)
    build.branch(loop)
    build.position_at_end(after)
    build.ret_void()
    return compiled(module, "walk")
