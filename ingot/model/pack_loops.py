"""numba: matrices rearranged into panels, in the order in which the tiles of a product read them (product_loops.py).

A panel holds SIDES rows of a, or columns of b, one after the other for every step k of the sum. It is written in squares of
LANES sides and LANES steps:

    k lies side by side in memory        a square is transposed
    sides lie side by side in memory     a square is copied

Legend: a side is a row of the left matrix or a column of the right one. Distances are in floats, addresses in bytes.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core.cgutils import get_or_insert_function
from numba.extending import intrinsic

from ingot.model.loops import ZERO, contracted, pointer
from ingot.model.tile_loops import INT, LANES, LONG, VECTOR, long

SIDES = 16  # a line of the cache
AHEAD = 64  # floats along k: lines are asked for this long before they are read
BYTES = ir.IntType(8).as_pointer()


def _shuffled(builder: Any, left: Any, right: Any, places: list[int]) -> Any:
    return builder.shuffle_vector(left, right, ir.Constant(ir.VectorType(INT, LANES), places))


def _transposed(builder: Any, rows: list[Any]) -> list[Any]:
    """Pairs of neighbours change places, then pairs of pairs."""
    even = [_shuffled(builder, rows[i], rows[i + 1], [0, 4, 2, 6]) for i in (0, 2)]
    odd = [_shuffled(builder, rows[i], rows[i + 1], [1, 5, 3, 7]) for i in (0, 2)]
    low = [_shuffled(builder, first, second, [0, 1, 4, 5]) for first, second in (even, odd)]
    high = [_shuffled(builder, first, second, [2, 3, 6, 7]) for first, second in (even, odd)]
    return low + high


def _square(transposes: bool) -> Any:
    """LANES rows of LANES floats from `source` to `target`; what lies `ahead` of the source is asked for."""

    def square(typing: Any, source: Any, step: Any, target: Any, target_step: Any, ahead: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            source, step, target, target_step, ahead = arguments
            kind = ir.FunctionType(ir.VoidType(), [BYTES, INT, INT, INT])
            prefetch = get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")

            def row(start: Any, step: Any, number: int, kind: Any) -> Any:
                away = builder.shl(builder.mul(step, long(number)), ir.Constant(LONG, 2))
                return builder.inttoptr(builder.add(start, away), kind)

            rows = [builder.load(row(source, step, number, VECTOR.as_pointer()), align=4) for number in range(LANES)]
            later = builder.add(source, builder.shl(ahead, ir.Constant(LONG, 2)))
            for number in range(LANES):  # to read, into the first level, data
                builder.call(
                    prefetch, [row(later, step, number, BYTES), *(ir.Constant(INT, flag) for flag in (0, 3, 1))]
                )
            for number, given in enumerate(_transposed(builder, rows) if transposes else rows):
                builder.store(given, row(target, target_step, number, VECTOR.as_pointer()), align=4)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 5), generate

    return intrinsic(square)


transpose, copy = _square(transposes=True), _square(transposes=False)


@contracted
def pack(
    source: int, side_step: int, k_step: int, sides: int, count: int, whole: int, out: int, apart: int, step: int
) -> None:
    """SIDES sides of `whole` steps each, zeros beyond the `sides` and `count` that there are; one of the source's steps is 1.

    In `out`, squares of neighbouring sides are `apart` floats apart, and the steps k of a square `step`.
    """
    done = count // LANES * LANES if sides == SIDES else 0
    if k_step == 1:
        for k in range(0, done, LANES):
            for side in range(0, SIDES, LANES):
                place = out + 4 * (k * step + side // LANES * apart)
                transpose(source + 4 * (side * side_step + k), side_step, place, step, AHEAD)
    else:
        for k in range(0, done, LANES):
            for side in range(0, SIDES, LANES):
                place = out + 4 * (k * step + side // LANES * apart)
                copy(source + 4 * (side + k * k_step), k_step, place, step, AHEAD * k_step)
    for k in range(done, whole):
        for side in range(SIDES):
            value = ZERO
            if side < sides and k < count:
                value = pointer(source + 4 * (side * side_step + k * k_step), ZERO)[0]
            pointer(out + 4 * (k * step + side // LANES * apart + side % LANES), ZERO)[0] = value
