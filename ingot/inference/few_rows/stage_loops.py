"""numba: the loops of a layer as stages of a team (team.py): each thread takes some of the rows.

A stage's numbers are the arguments of the loop in their order, floats as the bits of a float64; addresses are those of contiguous
float32 tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from ingot.data import native
from ingot.data.kernel_cache import kept
from ingot.model.feed_forward.gated_loops import gate_rows
from ingot.model.loops import Array, pointer
from ingot.model.mixers.attend_paged_loops import attend_rows
from ingot.model.mixers.store_loops import store_rows
from ingot.model.norm_loops import add_norm_rows

FLOAT = 4  # bytes of a float32,
LONG = 8  # and of an int64


def stage(function: Callable[[int, int, int], None]) -> Any:
    """void f(int64 *numbers, int64 thread, int64 threads), compiled; `address` is where it lies."""
    with kept(function):
        return numba.cfunc("void(int64, int64, int64)", cache=True)(function)


@native.inline
def _integers(numbers: int, count: int) -> Array:
    return numba.carray(pointer(numbers, np.int64(0)), (count,))


@native.inline
def _real(numbers: int, place: int) -> float:
    return numba.carray(pointer(numbers, 0.0), (place + 1,))[place]


@stage
def add_norm(numbers: int, thread: int, threads: int) -> None:
    """`add_norm_rows`; y may be 0, then x is normed as it is."""
    x, y, gain, total, normed, rows, width = _integers(numbers, 7)
    first, last = rows * thread // threads, rows * (thread + 1) // threads
    at = first * width * FLOAT
    more = y + at if y != 0 else 0
    add_norm_rows(x + at, more, gain, total + at, normed + at, last - first, width, _real(numbers, 7))


@stage
def gate(numbers: int, thread: int, threads: int) -> None:
    """`gate_rows`."""
    projected, out, rows, width = _integers(numbers, 4)
    first, last = rows * thread // threads, rows * (thread + 1) // threads
    gate_rows(projected + 2 * first * width * FLOAT, out + first * width * FLOAT, last - first, width)


@stage
def store(numbers: int, thread: int, threads: int) -> None:
    """`store_rows`."""
    given = _integers(numbers, 19)
    query, keys, values, projected, page_of, offset_of, cos, sin, query_gain, key_gain = given[:10]
    tokens, heads, key_heads, pages, page, width, pairs = given[10:17]
    first, last = tokens * thread // threads, tokens * (thread + 1) // threads
    turned = first * pairs * FLOAT
    store_rows(
        query + first * heads * width * FLOAT,
        keys,
        values,
        projected + first * (heads + 2 * key_heads) * width * FLOAT,
        page_of + first * LONG,
        offset_of + first * LONG,
        cos + turned,
        sin + turned,
        query_gain,
        key_gain,
        last - first,
        heads,
        key_heads,
        pages,
        page,
        width,
        pairs,
        _real(numbers, 17),
        given[18] != 0,
    )


@stage
def attend(numbers: int, thread: int, threads: int) -> None:
    """`attend_rows`; each thread has a room of its own, all of the size that comes last."""
    given = _integers(numbers, 24)
    query, keys, values, table, positions, sinks, out = given[:7]
    rows, tokens, heads, key_heads, pages, page, table_width, width, value_width = given[7:16]
    together, room, span, window, chunk, size = given[16:22]
    attend_rows(
        (query, keys, values, table, positions, sinks, out),
        (rows, tokens, heads, key_heads, pages, page, table_width, width, value_width),
        together,
        room + thread * size * FLOAT,
        span,
        _real(numbers, 22),
        window,
        chunk,
        _real(numbers, 23),
        thread,
        threads,
    )
