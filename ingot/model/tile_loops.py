"""numba: the innermost step of matrix products, c (+)= a b for 4 rows and 16 columns of c, whose 64 sums stay in registers.

    sum[i, j] += a[i, k] · b[k, j]        for k = 0 … count − 1

Every b is a vector of four neighbours j, every a one lane of a vector with four neighbours of a. Written in LLVM's language,
as no compiler finds it in plain loops. Arguments are addresses and the distances of rows in floats.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core.cgutils import get_or_insert_function
from numba.extending import intrinsic

ROWS, COLUMNS, LANES = 4, 16, 4
LONG, INT, FLOAT = ir.IntType(64), ir.IntType(32), ir.FloatType()
VECTOR = ir.VectorType(FLOAT, LANES)


def long(number: int) -> Any:
    """A constant of 64 bits."""
    return ir.Constant(LONG, number)


def _load(builder: Any, start: Any, row: Any, step: Any, column: int = 0) -> Any:
    return builder.load(_place(builder, start, row, step, column), align=4)


def _place(builder: Any, start: Any, row: Any, step: Any, column: int) -> Any:
    index = builder.add(builder.mul(row, step), ir.Constant(LONG, column))
    address = builder.add(start, builder.shl(index, ir.Constant(LONG, 2)))
    return builder.inttoptr(address, VECTOR.as_pointer())


def _write(
    across: bool,
    adds: bool,
    builder: Any,
    a: Any,
    a_step: Any,
    b: Any,
    b_step: Any,
    c: Any,
    c_step: Any,
    count: Any,
) -> None:
    """One tile. `across`: a is read as it lies transposed, a[k, i]; else as a[i, k], and the count is a multiple of 4."""
    zero = ir.Constant(VECTOR, [0.0] * LANES)
    vectors = COLUMNS // LANES
    first = [
        [_load(builder, c, long(row), c_step, LANES * part) if adds else zero for part in range(vectors)]
        for row in range(ROWS)
    ]
    before, loop, after = builder.block, builder.append_basic_block(), builder.append_basic_block()
    builder.branch(loop)
    builder.position_at_end(loop)
    k = builder.phi(LONG)
    sums = [[builder.phi(VECTOR) for _ in range(vectors)] for _ in range(ROWS)]
    totals = [list(row) for row in sums]
    if across:
        lanes = [_load(builder, a, builder.add(k, long(step)), a_step) for step in range(LANES)]
    else:
        start = builder.add(a, builder.shl(k, long(2)))
        lanes = [_load(builder, start, long(row), a_step) for row in range(ROWS)]
    fused = get_or_insert_function(builder.module, ir.FunctionType(VECTOR, [VECTOR] * 3), "llvm.fma.v4f32")
    for step in range(LANES):
        b_row = [_load(builder, b, builder.add(k, long(step)), b_step, LANES * part) for part in range(vectors)]
        for row in range(ROWS):
            source, lane = (lanes[step], row) if across else (lanes[row], step)
            picked = builder.shuffle_vector(source, source, ir.Constant(ir.VectorType(INT, LANES), [lane] * LANES))
            for part in range(vectors):
                totals[row][part] = builder.call(fused, [b_row[part], picked, totals[row][part]])
    following = builder.add(k, long(LANES))
    k.add_incoming(long(0), before)
    k.add_incoming(following, loop)
    for row in range(ROWS):
        for part in range(vectors):
            sums[row][part].add_incoming(first[row][part], before)
            sums[row][part].add_incoming(totals[row][part], loop)
    builder.cbranch(builder.icmp_signed("<", following, count), loop, after)
    builder.position_at_end(after)
    for row in range(ROWS):
        for part in range(vectors):
            builder.store(totals[row][part], _place(builder, c, long(row), c_step, LANES * part), align=4)


def _tile(across: bool, adds: bool) -> Any:
    def tile(typing: Any, a: Any, a_step: Any, b: Any, b_step: Any, c: Any, c_step: Any, count: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            _write(across, adds, builder, *arguments)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 7), generate

    return intrinsic(tile)


tile = _tile(across=False, adds=False)  # c = a b
tile_across = _tile(across=True, adds=False)  # c = aᵀ b
tile_transposed = _tile(across=True, adds=True)  # c += aᵀ b
