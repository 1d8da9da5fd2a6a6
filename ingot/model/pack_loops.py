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
from ingot.model.team import LINE
from ingot.model.tile_loops import INT, LANES, LONG, VECTOR, long

SIDES = LINE
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


def _at(builder: Any, start: Any, step: Any, number: int, kind: Any) -> Any:
    """A pointer to what lies `number` steps, in floats, after an address."""
    away = builder.shl(builder.mul(step, long(number)), ir.Constant(LONG, 2))
    return builder.inttoptr(builder.add(start, away), kind)


def _square(transposes: bool) -> Any:
    """LANES rows of LANES floats from `source` to `target`."""

    def square(typing: Any, source: Any, step: Any, target: Any, target_step: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            source, step, target, target_step = arguments
            vectors = VECTOR.as_pointer()
            rows = [builder.load(_at(builder, source, step, number, vectors), align=4) for number in range(LANES)]
            for number, given in enumerate(_transposed(builder, rows) if transposes else rows):
                builder.store(given, _at(builder, target, target_step, number, vectors), align=4)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 4), generate

    return intrinsic(square)


def _fetch(typing: Any, address: Any, distance: Any) -> Any:
    """Ask for the lines of LANES rows, to read them soon."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [BYTES, INT, INT, INT])
        prefetch = get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        flags = [ir.Constant(INT, flag) for flag in (0, 3, 1)]  # to read, into the first level, data
        start, step = arguments
        for number in range(LANES):
            builder.call(prefetch, [_at(builder, start, step, number, BYTES), *flags])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


transpose, copy, fetch = _square(transposes=True), _square(transposes=False), intrinsic(_fetch)


@contracted
def pack(
    source: int, side_step: int, k_step: int, sides: int, count: int, whole: int, out: int, apart: int, step: int
) -> None:
    """As many panels as hold the `sides`, of `whole` steps each, zeros beyond the sides and the `count` steps that there are; one
    of the source's steps is 1.

    In a panel, squares of neighbouring sides are `apart` floats apart, and the steps k of a square `step`.
    """
    full, done, panel = sides // SIDES * SIDES, count // LANES * LANES, 4 * SIDES * whole
    if k_step == 1:
        for top in range(0, full, SIDES):
            for line in range(0, done, LINE):  # all of a line before the next one, which may push it out of the cache
                for side in range(0, SIDES, LANES):
                    given, place = source + 4 * (top + side) * side_step, out + 4 * (side // LANES * apart)
                    fetch(given + 4 * (line + AHEAD), side_step)
                    for k in range(line, min(line + LINE, done), LANES):
                        transpose(given + 4 * k, side_step, place + top // SIDES * panel + 4 * k * step, step)
    else:
        for k in range(0, done, LANES):  # all sides before the next steps: they lie side by side
            for top in range(0, full, SIDES):
                given = source + 4 * (top + k * k_step)
                fetch(given + 4 * LANES * k_step, k_step)
                for side in range(0, SIDES, LANES):
                    place = out + 4 * (k * step + side // LANES * apart)
                    copy(given + 4 * side, k_step, place + top // SIDES * panel, step)
    for side in range(-(-sides // SIDES) * SIDES):
        for k in range(done if side < full else 0, whole):
            value = ZERO
            if side < sides and k < count:
                value = pointer(source + 4 * (side * side_step + k * k_step), ZERO)[0]
            place = out + side // SIDES * panel + 4 * (side % SIDES // LANES * apart + side % LANES)
            pointer(place + 4 * k * step, ZERO)[0] = value
