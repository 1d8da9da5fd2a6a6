"""numba: the loop of gated_numba.py."""

from __future__ import annotations

import numba
import numpy as np

from ingot.data import native
from ingot.model.loops import ZERO, Array, contracted, exponential, pointer


@contracted
def _gate_row(gate_F: Array, up_F: Array, out_F: Array) -> None:
    for f in range(gate_F.shape[0]):
        out_F[f] = gate_F[f] * up_F[f] / (np.float32(1) + exponential(-gate_F[f]))


@native.kernel
def gate_rows(projected: int, out: int, rows: int, width: int) -> None:
    """silu(gate) ⊙ up [N, F] of [gate | up], of addresses of contiguous float32 tensors."""
    projected_NGF = numba.carray(pointer(projected, ZERO), (rows, 2, width))
    out_NF = numba.carray(pointer(out, ZERO), (rows, width))
    for row in range(rows):
        _gate_row(projected_NGF[row, 0], projected_NGF[row, 1], out_NF[row])
