"""numba: causal attention over whole rows and its gradient, for attend_square.py. A task is one row and one key head.

Keys and values are copied once, beside their transposes, and padded with zeros to whole blocks of QUERIES; then every query head
goes through its blocks of QUERIES against the keys that a block can see. All products are tiles of tile_loops.py; those with p
and ds end, or begin, where a tile's queries see no more keys:

    s = q Kᵀ    p = exp(s − lse)    o = p V            dp = do Vᵀ    ds = p (dp − do·o)    dq = ds K    dV += pᵀ do    dK += dsᵀ q

Shapes: T tokens, W width of a head, Q queries of a block, S = T rounded up to whole blocks.
"""

from __future__ import annotations

import math

import numpy as np

from ingot.data import native
from ingot.model.loops import ZERO, Array, exponential, fast, largest_of, reordered
from ingot.model.team_loops import Task, as_float, for_team, matrix, share, thread_number, vector
from ingot.model.tile_loops import COLUMNS, ROWS, tile, tile_transposed

QUERIES = 32
WHOLE = (
    16  # exponentials are taken of as many at once, in vectors; what is beyond the last key of a query is thrown away
)
QUERY, KEY, VALUE, OUT, UP, D_QUERY, D_KEY, D_VALUE = range(8)  # the tensors of a task
LSE = 32  # where its other numbers begin


@fast
def _scaled(given_W: Array, factor: np.float32, out_W: Array) -> None:
    for w in range(given_W.shape[0]):
        out_W[w] = given_W[w] * factor


@native.kernel
def _copy(source: int, step: int, factor: np.float32, count: int, out_QW: Array) -> None:
    """Rows of memory, `step` floats apart, times a factor; zeros after the last."""
    for row in range(count):
        _scaled(vector(source + 4 * step * row, out_QW.shape[1]), factor, out_QW[row])
    out_QW[count:] = ZERO


@native.kernel
def _put(given_QW: Array, factor: np.float32, target: int, step: int) -> None:
    """Rows times a factor, to memory."""
    for row in range(given_QW.shape[0]):
        _scaled(given_QW[row], factor, vector(target + 4 * step * row, given_QW.shape[1]))


@fast
def _transpose(given_SW: Array, out_WS: Array) -> None:
    for s in range(0, given_SW.shape[0], 4):
        a, b, c, d = given_SW[s], given_SW[s + 1], given_SW[s + 2], given_SW[s + 3]
        for w in range(given_SW.shape[1]):
            out_W = out_WS[w]
            out_W[s], out_W[s + 1], out_W[s + 2], out_W[s + 3] = a[w], b[w], c[w], d[w]


@fast
def _scores(a: int, b: int, b_step: int, c: int, columns: int, width: int) -> None:
    """c = a b of a block of queries a with all keys b that some of them see."""
    for column in range(0, columns, COLUMNS):
        for row in range(0, QUERIES, ROWS):
            place = c + 4 * (row * b_step + column)
            tile(a + 4 * row * width, width, b + 4 * column, b_step, place, b_step, width)


@fast
def _mix(a: int, a_step: int, b: int, c: int, start: int, width: int) -> None:
    """c = a b of weights a of the queries from `start` on, up to the last key that each of them sees."""
    for column in range(0, width, COLUMNS):
        for row in range(0, QUERIES, ROWS):
            place = c + 4 * (row * width + column)
            tile(a + 4 * row * a_step, a_step, b + 4 * column, width, place, width, start + row + ROWS)


@fast
def _add_transposed(a: int, a_step: int, b: int, c: int, start: int, width: int) -> None:
    """c += aᵀ b of weights a of the queries from `start` on, for each key from the first query on that sees it."""
    for column in range(0, width, COLUMNS):
        for row in range(0, start + QUERIES, ROWS):
            first = max(0, row - start)
            weights, given = a + 4 * (row + first * a_step), b + 4 * (column + first * width)
            place = c + 4 * (row * width + column)
            tile_transposed(weights, a_step, given, width, place, width, QUERIES - first)


@reordered
def _weigh(scores_S: Array, seen: int, largest: np.float32) -> np.float32:
    """Scores become exp(s − largest), the next few beyond `seen` zero; returns the sum, which is a number if `largest` is."""
    whole = -(-seen // WHOLE) * WHOLE
    for j in range(whole):
        scores_S[j] = exponential(scores_S[j] - largest)
    for j in range(seen, whole):
        scores_S[j] = ZERO
    total = largest * ZERO  # `exponential` can make a number of what is none
    for j in range(whole):
        total += scores_S[j]
    return total


@fast
def _weigh_again(scores_S: Array, grown_S: Array, seen: int, lse: np.float32, along: np.float32) -> None:
    """Scores become p, and dp becomes ds; the next few beyond `seen` zero."""
    whole = -(-seen // WHOLE) * WHOLE
    for j in range(whole):
        weight = exponential(scores_S[j] - lse)
        scores_S[j] = weight
        grown_S[j] = weight * (grown_S[j] - along)
    for j in range(seen, whole):
        scores_S[j] = grown_S[j] = ZERO


@fast
def _dot(a_W: Array, b_W: Array) -> np.float32:
    total = ZERO
    for w in range(a_W.shape[0]):
        total += a_W[w] * b_W[w]
    return total


@fast
def _start(task: Task, tensor: int, row: int, head: int) -> int:
    """The address of a head's first token."""
    return task[4 * tensor] + 4 * (row * task[4 * tensor + 1] + head * task[4 * tensor + 2])


@fast
def _step(task: Task, tensor: int) -> int:
    """How many floats the tokens of a head are apart."""
    return task[4 * tensor + 3]


@fast
def _numbers(task: Task) -> tuple[int, int, int, int, int, int, int, np.float32]:
    """lse, the thread's working memory, B, K, G, T, W and the scale."""
    room = task[LSE + 1] + 4 * task[LSE + 2] * thread_number()
    shape = task[LSE + 3], task[LSE + 4], task[LSE + 5], task[LSE + 6], task[LSE + 7]
    return task[LSE], room, shape[0], shape[1], shape[2], shape[3], shape[4], as_float(task[LSE + 8])


@for_team
def forward(task: Task) -> None:
    """o and lse; the task is that of `backward`, whose gradients are not read."""
    lse, room, rows, key_heads, group, tokens, width, scale = _numbers(task)
    one, whole = np.float32(1), -(-tokens // QUERIES) * QUERIES
    size, block = 4 * whole * width, 4 * QUERIES * width
    value, key_t, query, out = room, room + size, room + 2 * size, room + 2 * size + block
    scores = out + block
    totals_Q = vector(scores + 4 * QUERIES * whole, QUERIES)
    value_SW, key_WS = matrix(value, whole, width), matrix(key_t, width, whole)
    query_QW, out_QW = matrix(query, QUERIES, width), matrix(out, QUERIES, width)
    first, last = share(rows * key_heads)
    for index in range(first, last):
        row, key_head = index // key_heads, index % key_heads
        _copy(_start(task, KEY, row, key_head), _step(task, KEY), one, tokens, value_SW)
        _transpose(value_SW, key_WS)
        _copy(_start(task, VALUE, row, key_head), _step(task, VALUE), one, tokens, value_SW)
        for head in range(key_head * group, (key_head + 1) * group):
            lse_T = vector(lse + 4 * tokens * (row * key_heads * group + head), tokens)
            for start in range(0, tokens, QUERIES):
                count, end = min(QUERIES, tokens - start), start + QUERIES
                place = _start(task, QUERY, row, head) + 4 * start * _step(task, QUERY)
                _copy(place, _step(task, QUERY), scale, count, query_QW)
                _scores(query, key_t, whole, scores, end, width)
                for i in range(QUERIES):
                    scores_S = vector(scores + 4 * i * whole, end)
                    largest = largest_of(scores_S[: start + i + 1])
                    total = _weigh(scores_S, start + i + 1, largest)
                    totals_Q[i] = one / total
                    if i < count:
                        lse_T[start + i] = largest + np.float32(math.log(total))
                _mix(scores, whole, value, out, start, width)
                place = _start(task, OUT, row, head) + 4 * start * _step(task, OUT)
                for i in range(count):
                    _put(out_QW[i : i + 1], totals_Q[i], place + 4 * i * _step(task, OUT), _step(task, OUT))


@for_team
def backward(task: Task) -> None:
    """dq, dk and dv. Task: (address, strides of row, head and token) of q, k, v, o, do, dq, dk, dv; then lse [B, H, T], working
    memory and its floats for each thread, B, K, G, T, W, scale."""
    lse, room, rows, key_heads, group, tokens, width, scale = _numbers(task)
    one, whole = np.float32(1), -(-tokens // QUERIES) * QUERIES
    size, block = 4 * whole * width, 4 * QUERIES * width
    key, key_t, value_t, d_key, d_value = room, room + size, room + 2 * size, room + 3 * size, room + 4 * size
    query, up, scores = room + 5 * size, room + 5 * size + block, room + 5 * size + 2 * block
    grown = scores + 4 * QUERIES * whole
    scores_QS, grown_QS = matrix(scores, QUERIES, whole), matrix(grown, QUERIES, whole)
    key_SW, query_QW, up_QW = matrix(key, whole, width), matrix(query, QUERIES, width), matrix(up, QUERIES, width)
    d_key_SW, d_value_SW = matrix(d_key, whole, width), matrix(d_value, whole, width)
    first, last = share(rows * key_heads)
    for index in range(first, last):
        row, key_head = index // key_heads, index % key_heads
        _copy(_start(task, VALUE, row, key_head), _step(task, VALUE), one, tokens, key_SW)
        _transpose(key_SW, matrix(value_t, width, whole))
        _copy(_start(task, KEY, row, key_head), _step(task, KEY), one, tokens, key_SW)
        _transpose(key_SW, matrix(key_t, width, whole))
        d_key_SW[:], d_value_SW[:] = ZERO, ZERO
        for head in range(key_head * group, (key_head + 1) * group):
            lse_T = vector(lse + 4 * tokens * (row * key_heads * group + head), tokens)
            for start in range(0, tokens, QUERIES):
                count, end = min(QUERIES, tokens - start), start + QUERIES
                given = _start(task, UP, row, head) + 4 * start * _step(task, UP)
                out = _start(task, OUT, row, head) + 4 * start * _step(task, OUT)
                place = _start(task, QUERY, row, head) + 4 * start * _step(task, QUERY)
                _copy(place, _step(task, QUERY), scale, count, query_QW)
                _copy(given, _step(task, UP), one, count, up_QW)
                _scores(query, key_t, whole, scores, end, width)
                _scores(up, value_t, whole, grown, end, width)
                for i in range(count):
                    along = _dot(up_QW[i], vector(out + 4 * i * _step(task, OUT), width))
                    scores_S, grown_S = vector(scores + 4 * i * whole, end), vector(grown + 4 * i * whole, end)
                    _weigh_again(scores_S, grown_S, start + i + 1, lse_T[start + i], along)
                for i in range(count, QUERIES):
                    scores_QS[i, :end], grown_QS[i, :end] = ZERO, ZERO
                _add_transposed(scores, whole, up, d_value, start, width)
                _add_transposed(grown, whole, query, d_key, start, width)
                _mix(grown, whole, key, query, start, width)
                place = _start(task, D_QUERY, row, head) + 4 * start * _step(task, D_QUERY)
                _put(query_QW[:count], scale, place, _step(task, D_QUERY))
        _put(d_key_SW[:tokens], one, _start(task, D_KEY, row, key_head), _step(task, D_KEY))
        _put(d_value_SW[:tokens], one, _start(task, D_VALUE, row, key_head), _step(task, D_VALUE))
