"""numba: the loop of embedding_team.py."""

from __future__ import annotations

import numba
import numpy as np

from ingot.model.loops import ZERO, Array, contracted, pointer
from ingot.model.team_loops import Task, for_team, matrix, share, wait


@contracted
def _add(given_D: Array, total_D: Array) -> None:
    for d in range(given_D.shape[0]):
        total_D[d] += given_D[d]


@for_team
def add_rows(task: Task) -> None:
    """Tokens (int64, all of the vocabulary), the gradients of their rows, that of the matrix; N, V, D. Threads share columns: the
    order of a sum is that of the tokens."""
    count, vocabulary, width = task[3], task[4], task[5]
    tokens_N = numba.carray(pointer(task[0], np.int64(0)), (count,))
    up_ND, total_VD = matrix(task[1], count, width), matrix(task[2], vocabulary, width)
    first, last = share(vocabulary)
    total_VD[first:last] = ZERO
    wait()
    first, last = share(width)
    for n in range(count):
        _add(up_ND[n, first:last], total_VD[tokens_N[n], first:last])
