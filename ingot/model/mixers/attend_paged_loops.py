"""numba: attention of few queries to keys in pages, on the CPU. attend_paged_numba.py calls it.

One row at a time (or a part of its key heads), in three passes over the keys that its queries can see:

    s_mj = scale · q_m·k_j        w_mj = exp(s_mj − max_j s_mj)        o_m = Σ_j w_mj v_j / Σ_j w_mj

Pages are read where they lie, and once from memory: a page's heads lie side by side and are read one after the other, and all
queries of a head use its keys while they are in the first cache. What keeps the arithmetic units of a core busy is that three
queries meet four keys at a time: twelve sums for seven loads. Queries left over go alone.

Additions run several at a time, in an order of the compiler's choice: another order's results differ by roundings of float32.

Shapes: B rows, T tokens, H query heads, K key heads, G = H/K, N pages, P tokens of a page, R pages of a row, W key width, V value
width, S keys that are seen, M = K·T·G queries, numbered (key head · T + token) · G + head of the group.
"""

from __future__ import annotations

import math

import numba
import numpy as np

from ingot.data import native
from ingot.model.loops import ZERO, Array, contracted, exponential, fast, largest_of, pointer


@fast
def _scores_of_three(query_MW: Array, m: int, keys_PW: Array, j: int, end: int, out_MS: Array, i: int) -> None:
    """out[m …, i …] = q·k of three queries from the m-th on and a page's keys j … end − 1."""
    q0, q1, q2 = query_MW[m], query_MW[m + 1], query_MW[m + 2]
    out0, out1, out2 = out_MS[m], out_MS[m + 1], out_MS[m + 2]
    while j + 4 <= end:
        ka, kb, kc, kd = keys_PW[j], keys_PW[j + 1], keys_PW[j + 2], keys_PW[j + 3]
        a0 = b0 = c0 = d0 = a1 = b1 = c1 = d1 = a2 = b2 = c2 = d2 = ZERO
        for w in range(query_MW.shape[1]):
            x, y, z = q0[w], q1[w], q2[w]
            a, b, c, d = ka[w], kb[w], kc[w], kd[w]
            a0 += x * a
            b0 += x * b
            c0 += x * c
            d0 += x * d
            a1 += y * a
            b1 += y * b
            c1 += y * c
            d1 += y * d
            a2 += z * a
            b2 += z * b
            c2 += z * c
            d2 += z * d
        out0[i], out0[i + 1], out0[i + 2], out0[i + 3] = a0, b0, c0, d0
        out1[i], out1[i + 1], out1[i + 2], out1[i + 3] = a1, b1, c1, d1
        out2[i], out2[i + 1], out2[i + 2], out2[i + 3] = a2, b2, c2, d2
        i += 4
        j += 4
    while j < end:
        ka = keys_PW[j]
        a0 = a1 = a2 = ZERO
        for w in range(query_MW.shape[1]):
            a0 += q0[w] * ka[w]
            a1 += q1[w] * ka[w]
            a2 += q2[w] * ka[w]
        out0[i], out1[i], out2[i] = a0, a1, a2
        i += 1
        j += 1


@fast
def _scores_of_one(query_W: Array, keys_PW: Array, j: int, end: int, out_S: Array, i: int) -> None:
    """The same for one query."""
    while j + 2 <= end:
        ka, kb = keys_PW[j], keys_PW[j + 1]
        a = b = ZERO
        for w in range(query_W.shape[0]):
            a += query_W[w] * ka[w]
            b += query_W[w] * kb[w]
        out_S[i], out_S[i + 1] = a, b
        i += 2
        j += 2
    if j < end:
        ka, a = keys_PW[j], ZERO
        for w in range(query_W.shape[0]):
            a += query_W[w] * ka[w]
        out_S[i] = a


@contracted
def _mix_for_three(weights_MS: Array, i: int, values_PV: Array, j: int, end: int, out_MV: Array, m: int) -> None:
    """out[m …] += Σ w·v of three queries from the m-th on, with weights from the i-th on, and a page's values j … end − 1."""
    out0, out1, out2 = out_MV[m], out_MV[m + 1], out_MV[m + 2]
    w0, w1, w2 = weights_MS[m], weights_MS[m + 1], weights_MS[m + 2]
    while j + 4 <= end:
        va, vb, vc, vd = values_PV[j], values_PV[j + 1], values_PV[j + 2], values_PV[j + 3]
        a0, b0, c0, d0 = w0[i], w0[i + 1], w0[i + 2], w0[i + 3]
        a1, b1, c1, d1 = w1[i], w1[i + 1], w1[i + 2], w1[i + 3]
        a2, b2, c2, d2 = w2[i], w2[i + 1], w2[i + 2], w2[i + 3]
        for v in range(out_MV.shape[1]):
            a, b, c, d = va[v], vb[v], vc[v], vd[v]
            out0[v] = out0[v] + a * a0 + b * b0 + c * c0 + d * d0
            out1[v] = out1[v] + a * a1 + b * b1 + c * c1 + d * d1
            out2[v] = out2[v] + a * a2 + b * b2 + c * c2 + d * d2
        i += 4
        j += 4
    while j < end:
        va, a0, a1, a2 = values_PV[j], w0[i], w1[i], w2[i]
        for v in range(out_MV.shape[1]):
            out0[v] += va[v] * a0
            out1[v] += va[v] * a1
            out2[v] += va[v] * a2
        i += 1
        j += 1


@contracted
def _mix_for_one(weights_S: Array, i: int, values_PV: Array, j: int, end: int, out_V: Array) -> None:
    """The same for one query."""
    while j + 4 <= end:
        va, vb, vc, vd = values_PV[j], values_PV[j + 1], values_PV[j + 2], values_PV[j + 3]
        a, b, c, d = weights_S[i], weights_S[i + 1], weights_S[i + 2], weights_S[i + 3]
        for v in range(out_V.shape[0]):
            out_V[v] = out_V[v] + a * va[v] + b * vb[v] + c * vc[v] + d * vd[v]
        i += 4
        j += 4
    while j < end:
        va, a = values_PV[j], weights_S[i]
        for v in range(out_V.shape[0]):
            out_V[v] += a * va[v]
        i += 1
        j += 1


@fast
def _exponentials(x: Array, largest: np.float32) -> np.float32:
    """x <- e^(x − largest), and their sum."""
    total = ZERO
    for i in range(x.shape[0]):
        x[i] = exponential(x[i] - largest)
        total += x[i]
    return total


@fast
def _score_page(query_MW: Array, keys_KPW: Array, begin: int, end: int, out_MS: Array, i: int) -> None:
    """Scores of all queries with the keys begin … end − 1 of a page's heads, from column i on."""
    own = query_MW.shape[0] // keys_KPW.shape[0]
    for k in range(keys_KPW.shape[0]):
        keys_PW = keys_KPW[k]
        for m in range(k * own, (k + 1) * own - 2, 3):
            _scores_of_three(query_MW, m, keys_PW, begin, end, out_MS, i)
        for m in range((k + 1) * own - own % 3, (k + 1) * own):
            _scores_of_one(query_MW[m], keys_PW, begin, end, out_MS[m], i)


@fast
def _mix_page(weights_MS: Array, i: int, values_KPV: Array, begin: int, end: int, out_MV: Array) -> None:
    """Add the values begin … end − 1 of a page's heads, with the weights from column i on."""
    own = out_MV.shape[0] // values_KPV.shape[0]
    for k in range(values_KPV.shape[0]):
        values_PV = values_KPV[k]
        for m in range(k * own, (k + 1) * own - 2, 3):
            _mix_for_three(weights_MS, i, values_PV, begin, end, out_MV, m)
        for m in range((k + 1) * own - own % 3, (k + 1) * own):
            _mix_for_one(weights_MS[m], i, values_PV, begin, end, out_MV[m])


@fast
def _soften(scores_S: Array, softcap: float, sinks: Array) -> np.float32:
    """Scores to weights; the sum of the weights, and of the sink's, which is the first of `sinks` where there is one."""
    if softcap > 0:
        for i in range(scores_S.shape[0]):
            scores_S[i] = np.float32(softcap) * math.tanh(scores_S[i] / np.float32(softcap))
    largest, total = largest_of(scores_S), ZERO
    if sinks.shape[0] > 0:
        largest = max(largest, sinks[0])
        total = np.float32(math.exp(sinks[0] - largest))
    return total + _exponentials(scores_S, largest)


@fast
def _first_seen(position: int, window: int, chunk: int) -> int:
    """The first key that a query at `position` sees."""
    first = 0
    if window > 0:
        first = max(first, position - window + 1)
    if chunk > 0:
        first = max(first, position - position % chunk)
    return first


@fast
def _span(positions_T: Array, window: int, chunk: int) -> tuple[int, int]:
    """The first and the last key that one of a row's queries sees."""
    lowest, highest = _first_seen(positions_T[0], window, chunk), positions_T[0]
    for t in range(1, positions_T.shape[0]):
        lowest = min(lowest, _first_seen(positions_T[t], window, chunk))
        highest = max(highest, positions_T[t])
    return lowest, highest


@native.kernel
def longest_span(positions: int, rows: int, tokens: int, window: int, chunk: int) -> int:
    """The most keys that a row's queries can see."""
    positions_BT = numba.carray(pointer(positions, np.int64(0)), (rows, tokens))
    longest = 0
    for row in range(rows):
        lowest, highest = _span(positions_BT[row], window, chunk)
        longest = max(longest, highest + 1 - lowest)
    return longest


@native.kernel
def attend_rows(
    addresses: tuple[int, ...],
    shape: tuple[int, ...],
    together: int,
    room: int,  # the address of `room_for` float32 numbers
    span: int,
    scale: float,
    window: int,  # 0: none
    chunk: int,  # 0: none
    softcap: float,  # 0: none
    worker: int,
    workers: int,
) -> None:
    """Every `workers`-th item from the `worker`-th on; an item is `together` key heads of a row.

    Addresses are those of contiguous tensors; that of sinks may be 0.
    """
    query, keys, values, table, positions, sinks, out = addresses
    rows, tokens, heads, key_heads, count_N, page, pages, width, value_width = shape
    query_BTHW = numba.carray(pointer(query, ZERO), (rows, tokens, heads, width))
    keys_NKPW = numba.carray(pointer(keys, ZERO), (count_N, key_heads, page, width))
    values_NKPV = numba.carray(pointer(values, ZERO), (count_N, key_heads, page, value_width))
    table_BR = numba.carray(pointer(table, np.int32(0)), (rows, pages))
    positions_BT = numba.carray(pointer(positions, np.int64(0)), (rows, tokens))
    sinks_H = numba.carray(pointer(sinks, ZERO), (heads if sinks > 0 else 0,))
    out_BTHV = numba.carray(pointer(out, ZERO), (rows, tokens, heads, value_width))
    group, parts = heads // key_heads, key_heads // together
    count = together * tokens * group
    query_MW = numba.carray(pointer(room, ZERO), (count, width))
    mixed_MV = numba.carray(pointer(room + 4 * count * width, ZERO), (count, value_width))
    weights_MS = numba.carray(pointer(room + 4 * count * (width + value_width), ZERO), (count, span))

    for item in range(worker, rows * parts, workers):
        row, first = item // parts, item % parts * together
        last = first + together
        lowest, highest = _span(positions_BT[row], window, chunk)
        m = 0
        for k in range(first, last):
            for t in range(tokens):
                for head in range(k * group, (k + 1) * group):
                    for w in range(width):
                        query_MW[m, w] = query_BTHW[row, t, head, w] * np.float32(scale)
                    m += 1

        at = lowest
        while at <= highest:
            stop = min(at - at % page + page, highest + 1)
            keys_KPW = keys_NKPW[table_BR[row, at // page % pages], first:last]
            _score_page(query_MW, keys_KPW, at % page, at % page + stop - at, weights_MS, at - lowest)
            at = stop

        m = 0
        for k in range(first, last):
            for t in range(tokens):
                begin, stop = _first_seen(positions_BT[row, t], window, chunk), positions_BT[row, t] + 1
                for head in range(k * group, (k + 1) * group):
                    weights_MS[m, : begin - lowest] = 0
                    weights_MS[m, stop - lowest : highest + 1 - lowest] = 0
                    total = _soften(weights_MS[m, begin - lowest : stop - lowest], softcap, sinks_H[head:])
                    query_MW[m, 0] = 1 / total  # the query itself is not needed any more
                    mixed_MV[m] = 0
                    m += 1

        at = lowest
        while at <= highest:
            stop = min(at - at % page + page, highest + 1)
            values_KPV = values_NKPV[table_BR[row, at // page % pages], first:last]
            _mix_page(weights_MS, at - lowest, values_KPV, at % page, at % page + stop - at, mixed_MV)
            at = stop

        m = 0
        for k in range(first, last):
            for t in range(tokens):
                for head in range(k * group, (k + 1) * group):
                    for v in range(value_width):
                        out_BTHV[row, t, head, v] = mixed_MV[m, v] * query_MW[m, 0]
                    m += 1


def room_for(queries: int, width: int, value_width: int, span: int) -> int:
    """How many numbers a worker needs beside: queries, mixtures and weights."""
    return queries * (width + value_width + span)
