"""numba: the loop of store_numba.py, a token at a time, head by head.

Shapes: N tokens, H query heads, K key heads, A = H + 2K heads of a projection [queries | keys | values], W head width,
R turned pairs, M pages, P tokens of a page.
"""

from __future__ import annotations

import numba
import numpy as np

from ingot.data import native
from ingot.model.loops import ZERO, Array, pointer, reordered
from ingot.model.norm_loops import norm_row


@reordered
def _copy(x_W: Array, out_W: Array) -> None:
    for w in range(x_W.shape[0]):
        out_W[w] = x_W[w]


@reordered
def _turn_halves(x_W: Array, cos_R: Array, sin_R: Array) -> None:
    """Turn the first 2R channels where they are; channel r goes with r + R."""
    pairs = cos_R.shape[0]
    first_R, second_R = x_W[:pairs], x_W[pairs : 2 * pairs]
    for r in range(pairs):
        first, second = first_R[r], second_R[r]
        first_R[r] = first * cos_R[r] - second * sin_R[r]
        second_R[r] = second * cos_R[r] + first * sin_R[r]


@reordered
def _turn_neighbours(x_W: Array, cos_R: Array, sin_R: Array) -> None:
    """The same with channels 2r and 2r + 1."""
    for r in range(cos_R.shape[0]):
        first, second = x_W[2 * r], x_W[2 * r + 1]
        x_W[2 * r] = first * cos_R[r] - second * sin_R[r]
        x_W[2 * r + 1] = second * cos_R[r] + first * sin_R[r]


@reordered
def _place(
    x_W: Array, gain_W: Array, epsilon: float, cos_R: Array, sin_R: Array, interleaved: bool, out_W: Array
) -> None:
    """A head normed, where there is a gain, and turned."""
    if gain_W.shape[0] > 0:
        norm_row(x_W, gain_W, epsilon, out_W)
    else:
        _copy(x_W, out_W)
    if interleaved:
        _turn_neighbours(out_W, cos_R, sin_R)
    else:
        _turn_halves(out_W, cos_R, sin_R)


@native.kernel
def store_rows(
    query: int,
    keys: int,
    values: int,
    projected: int,
    page_of: int,
    offset_of: int,
    cos: int,
    sin: int,
    query_gain: int,  # 0: no norm
    key_gain: int,
    tokens: int,
    heads: int,
    key_heads: int,
    pages: int,
    page: int,
    width: int,
    pairs: int,
    epsilon: float,
    interleaved: bool,
) -> None:
    """Queries [N, H, W], and keys and values in their pages, of addresses of contiguous tensors; places are int64."""
    all_heads = heads + 2 * key_heads
    projected_NAW = numba.carray(pointer(projected, ZERO), (tokens, all_heads, width))
    query_NHW = numba.carray(pointer(query, ZERO), (tokens, heads, width))
    keys_MKPW = numba.carray(pointer(keys, ZERO), (pages, key_heads, page, width))
    values_MKPW = numba.carray(pointer(values, ZERO), (pages, key_heads, page, width))
    page_N = numba.carray(pointer(page_of, np.int64(0)), (tokens,))
    offset_N = numba.carray(pointer(offset_of, np.int64(0)), (tokens,))
    cos_NR, sin_NR = (
        numba.carray(pointer(cos, ZERO), (tokens, pairs)),
        numba.carray(pointer(sin, ZERO), (tokens, pairs)),
    )
    normed = width if query_gain != 0 else 0
    query_gain_W = numba.carray(pointer(query_gain, ZERO), (normed,))
    key_gain_W = numba.carray(pointer(key_gain, ZERO), (normed,))
    for n in range(tokens):
        there, offset, cos_R, sin_R = page_N[n], offset_N[n], cos_NR[n], sin_NR[n]
        for head in range(heads):
            _place(projected_NAW[n, head], query_gain_W, epsilon, cos_R, sin_R, interleaved, query_NHW[n, head])
        for head in range(key_heads):
            key_W, value_W = keys_MKPW[there, head, offset], values_MKPW[there, head, offset]
            _place(projected_NAW[n, heads + head], key_gain_W, epsilon, cos_R, sin_R, interleaved, key_W)
            _copy(projected_NAW[n, heads + key_heads + head], value_W)
