"""numba: the loop of rope_team.py."""

from __future__ import annotations

import numpy as np

from ingot.model.loops import Array, contracted
from ingot.model.team_loops import Task, as_float, for_team, share, vector


@contracted
def _halves(x_W: Array, cos_R: Array, sin_R: Array, sign: np.float32, out_W: Array) -> None:
    pairs = cos_R.shape[0]
    for r in range(pairs):
        first, second, sine = x_W[r], x_W[r + pairs], sin_R[r] * sign
        out_W[r] = first * cos_R[r] - second * sine
        out_W[r + pairs] = second * cos_R[r] + first * sine


@contracted
def _neighbours(x_W: Array, cos_R: Array, sin_R: Array, sign: np.float32, out_W: Array) -> None:
    for r in range(cos_R.shape[0]):
        first, second, sine = x_W[2 * r], x_W[2 * r + 1], sin_R[r] * sign
        out_W[2 * r] = first * cos_R[r] - second * sine
        out_W[2 * r + 1] = second * cos_R[r] + first * sine


@for_team
def turn(task: Task) -> None:
    """x, cos, sin, out; B, T, H, W; the strides of x's rows, tokens and heads; interleaved; the sign of the angle; the stride of
    out's tokens."""
    tokens, heads, width, sign = task[5], task[6], task[7], as_float(task[12])
    pairs = width // 2
    first, last = share(task[4] * tokens)
    for place in range(first, last):
        cos_R, sin_R = vector(task[1] + 4 * pairs * place, pairs), vector(task[2] + 4 * pairs * place, pairs)
        start = task[0] + 4 * (place // tokens * task[8] + place % tokens * task[9])
        for head in range(heads):
            x_W = vector(start + 4 * head * task[10], width)
            out_W = vector(task[3] + 4 * (place * task[13] + head * width), width)
            if task[11]:
                _neighbours(x_W, cos_R, sin_R, sign, out_W)
            else:
                _halves(x_W, cos_R, sin_R, sign, out_W)
