"""numba: the loop of norm_numba.py, a row at a time."""

from __future__ import annotations

import numba
import numpy as np

from ingot.data import native
from ingot.model.loops import ZERO, Array, pointer, reordered


@reordered
def _add(x_D: Array, y_D: Array, total_D: Array) -> None:
    for d in range(x_D.shape[0]):
        total_D[d] = x_D[d] + y_D[d]


@reordered
def norm_row(x_D: Array, gain_D: Array, epsilon: float | np.float32, out_D: Array) -> None:
    """out = x / sqrt(mean(x²) + ε) · gain."""
    squares = ZERO
    for d in range(x_D.shape[0]):
        squares += x_D[d] * x_D[d]
    factor = np.float32(1) / np.sqrt(squares / np.float32(x_D.shape[0]) + np.float32(epsilon))
    for d in range(x_D.shape[0]):
        out_D[d] = x_D[d] * factor * gain_D[d]


@native.kernel
def add_norm_rows(x: int, y: int, gain: int, total: int, normed: int, rows: int, width: int, epsilon: float) -> None:
    """total = x + y, normed = norm(total); or the norm of x alone, where y is 0. Addresses of contiguous float32 tensors."""
    x_ND, y_ND = numba.carray(pointer(x, ZERO), (rows, width)), numba.carray(pointer(y, ZERO), (rows, width))
    total_ND, normed_ND = (
        numba.carray(pointer(total, ZERO), (rows, width)),
        numba.carray(pointer(normed, ZERO), (rows, width)),
    )
    gain_D = numba.carray(pointer(gain, ZERO), (width,))
    for row in range(rows):
        if y != 0:
            _add(x_ND[row], y_ND[row], total_ND[row])
        norm_row(total_ND[row], gain_D, epsilon, normed_ND[row])
