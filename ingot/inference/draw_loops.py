"""numba: the loops of draw_numba.py.

The sum of a row's weights is kept in parts of BLOCK tokens: to find the token where the sum passes a number, the parts are looked
through first, then one of them. Exponentials are in float32, sums in float64.

Shapes: B rows, V vocabulary, C = ⌈V / BLOCK⌉ parts.
"""

from __future__ import annotations

import math

import numba
import numpy as np

from ingot.data import native
from ingot.model.loops import ZERO, Array, contracted, exponential, largest_of, pointer, reordered

BLOCK = 512  # tokens
LOWEST = np.float32(-87)  # the logarithm of the smallest weight that is not zero


@contracted
def _weight(x: np.float32, largest: np.float32, scale: np.float32) -> np.float64:
    """e^((x − largest) · scale)."""
    power = (x - largest) * scale
    return np.float64(exponential(power) if power >= LOWEST else ZERO)


@reordered
def _sum(x_V: Array, largest: np.float32, scale: np.float32) -> float:
    total = 0.0
    for v in range(x_V.shape[0]):
        total += _weight(x_V[v], largest, scale)
    return total


@contracted
def _first(x_V: Array, value: np.float32) -> int:
    """Where `value` is first."""
    v = 0
    while v + 1 < x_V.shape[0] and x_V[v] != value:
        v += 1
    return v


@contracted
def _pass(x_V: Array, largest: np.float32, scale: np.float32, parts_C: Array, target: np.float64) -> int:
    """The first token at which the sum of weights is larger than `target`; the last that has weight, if rounding hides it."""
    before, part = 0.0, 0
    while part + 1 < parts_C.shape[0] and before + parts_C[part] <= target:
        before += parts_C[part]
        part += 1
    last = part * BLOCK
    for v in range(part * BLOCK, min((part + 1) * BLOCK, x_V.shape[0])):
        weight = _weight(x_V[v], largest, scale)
        before += weight
        if weight > 0:
            last = v
        if before > target:
            break
    return last


@native.kernel
def draw_plain_rows(
    chosen: int,  # [P], int64: the rows that are drawn
    count: int,  # P
    logits: int,  # [B, V]
    scales: int,  # [B], float64
    greedy: int,  # [B], int64
    uniform: int,  # [B], float64; not looked at in greedy rows
    parts: int,  # room for [C], float64
    ids: int,  # [B], int64
    logprobs: int,  # [B], float64
    rows: int,
    size: int,
) -> None:
    """A token and its log-probability for each chosen row; nan where a logit is not a number or none is finite."""
    logits_BV = numba.carray(pointer(logits, ZERO), (rows, size))
    scales_B, uniform_B = numba.carray(pointer(scales, 0.0), (rows,)), numba.carray(pointer(uniform, 0.0), (rows,))
    greedy_B, ids_B = (
        numba.carray(pointer(greedy, np.int64(0)), (rows,)),
        numba.carray(pointer(ids, np.int64(0)), (rows,)),
    )
    parts_C, logprobs_B = (
        numba.carray(pointer(parts, 0.0), (-(-size // BLOCK),)),
        numba.carray(pointer(logprobs, 0.0), (rows,)),
    )
    chosen_P = numba.carray(pointer(chosen, np.int64(0)), (count,))
    for row in chosen_P:
        x_V, scale = logits_BV[row], np.float32(scales_B[row])
        largest = largest_of(x_V)
        if not math.isfinite(largest):
            ids_B[row], logprobs_B[row] = 0, math.nan
            continue
        total = 0.0
        for part in range(parts_C.shape[0]):
            parts_C[part] = _sum(x_V[part * BLOCK : (part + 1) * BLOCK], largest, scale)
            total += parts_C[part]
        if greedy_B[row]:
            token = _first(x_V, largest)
        else:
            token = _pass(x_V, largest, scale, parts_C, uniform_B[row] * total)
        ids_B[row] = token
        logprobs_B[row] = np.float64((x_V[token] - largest) * scale) - math.log(total)
