"""numba: the loops of norm_team.py."""

from __future__ import annotations

import numpy as np

from ingot.model.loops import ZERO, Array, reordered
from ingot.model.norm_loops import norm_row
from ingot.model.team_loops import Task, as_float, for_team, share, team_size, thread_number, vector, wait


@reordered
def _differentiate(x_D: Array, gain_D: Array, up_D: Array, epsilon: np.float32, out_D: Array, d_gain_D: Array) -> None:
    squares = along = ZERO
    for d in range(x_D.shape[0]):
        squares += x_D[d] * x_D[d]
        along += up_D[d] * gain_D[d] * x_D[d]
    width = np.float32(x_D.shape[0])
    factor = np.float32(1) / np.sqrt(squares / width + epsilon)
    back = along * factor * factor / width
    for d in range(x_D.shape[0]):
        out_D[d] = factor * (up_D[d] * gain_D[d] - x_D[d] * back)
        d_gain_D[d] += up_D[d] * x_D[d] * factor


@reordered
def _add(given_D: Array, out_D: Array) -> None:
    for d in range(out_D.shape[0]):
        out_D[d] += given_D[d]


@for_team
def forward(task: Task) -> None:
    """x, gain, out; N, D, epsilon; where x is copied to, or 0."""
    width, epsilon = task[4], as_float(task[5])
    gain_D, row = vector(task[1], width), 4 * width
    first, last = share(task[3])
    for token in range(first, last):
        x_D = vector(task[0] + row * token, width)
        norm_row(x_D, gain_D, epsilon, vector(task[2] + row * token, width))
        if task[6] != 0:
            vector(task[6] + row * token, width)[:] = x_D


@for_team
def backward(task: Task) -> None:
    """x, gain, d out, d x, d gain, the threads' shares of it; N, D, epsilon; what is added to d x, or 0."""
    width, epsilon = task[7], as_float(task[8])
    gain_D, row = vector(task[1], width), 4 * width
    own_D = vector(task[5] + row * thread_number(), width)
    own_D[:] = ZERO
    first, last = share(task[6])
    for token in range(first, last):
        x_D, up_D, out_D = (
            vector(task[0] + row * token, width),
            vector(task[2] + row * token, width),
            vector(task[3] + row * token, width),
        )
        _differentiate(x_D, gain_D, up_D, epsilon, out_D, own_D)
        if task[9] != 0:
            _add(vector(task[9] + row * token, width), out_D)
    wait()
    d_gain_D = vector(task[4], width)
    first, last = share(width)
    for d in range(first, last):
        d_gain_D[d] = ZERO
        for thread in range(team_size()):
            d_gain_D[d] += vector(task[5] + row * thread, width)[d]
