"""The compiled program of products of a few rows: a stage of a team (team.py), whose numbers are a task (task.py).

    write panels of 8 rows, each thread a part of the inputs   →  wait for each other  →  for each four of a thread's outputs:
    the tiles of all panels, then those of the rows that are left

so every weight is read from memory once, and from the cache for the tiles after the first.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from ingot.inference.few_rows.language import LANES, LONG, Loop, Value, call, compiled, long, smaller
from ingot.inference.few_rows.task import LEAST_OF_PANEL, OUTPUTS, PANEL, TASK, Kind
from ingot.inference.few_rows.tiles import write_panel, write_panel_tile, write_tile
from ingot.model.team import WAIT, openmp

TILES = (4, 2, 1)  # rows: for what no panel has


def write_program(kind: Kind) -> ir.Module:
    """A thread goes through its share of the outputs, and for each four of them through all rows."""
    module = ir.Module()
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [LONG.as_pointer(), LONG, LONG]), "multiply")
    numbers, thread, threads = function.args
    build = ir.IRBuilder(function.append_basic_block())
    task = {name: build.load(build.gep(numbers, [long(place)])) for place, name in enumerate(TASK)}

    def share(parts: Value) -> tuple[Value, Value]:
        """The first of the thread's parts, and the first that is not."""
        own = build.mul(parts, thread), build.mul(parts, build.add(thread, long(1)))
        return build.sdiv(own[0], threads), build.sdiv(own[1], threads)

    # the last panel may have fewer rows, but not so few that the small tiles are faster
    panels = build.sdiv(build.add(task["rows"], long(PANEL - LEAST_OF_PANEL)), long(PANEL))
    first, last = share(build.sdiv(task["inputs"], long(LANES)))
    with Loop(build, long(0), panels) as panel:
        write_panel(build, task, panel, first, last)
    with build.if_then(build.icmp_signed(">", panels, long(0))):
        call(build, WAIT, ir.VoidType())

    first, last = share(build.sdiv(build.add(task["outputs"], long(OUTPUTS - 1)), long(OUTPUTS)))
    with Loop(build, first, last) as group:
        # the last group may compute some outputs again
        output = smaller(build, build.mul(group, long(OUTPUTS)), build.sub(task["outputs"], long(OUTPUTS)))
        with Loop(build, long(0), panels) as panel:
            write_panel_tile(kind, build, task, panel, output)
        start = build.mul(panels, long(PANEL))
        for rows in TILES:
            with Loop(build, start, task["rows"], rows) as row:
                write_tile(kind, build, task, row, output, rows)
            start = row  # where the rows that are left begin
    build.ret_void()
    return module


def compile_program(kind: Kind) -> tuple[Any, int]:
    """What keeps the compiled program alive, and its address."""
    openmp()  # names what the program calls
    return compiled(write_program(kind), "multiply")
