"""numba: from a chunk's logits to their gradient, in place, for train/fused_head.py.

    log Z = log Σ_v e^{z_v}        log p = z_t − log Z        dz_v = a [v = t] + (2 b log Z − a) e^{z_v} / Z

Shapes: C tokens of a chunk, V vocabulary.
"""

from __future__ import annotations

import math

import numba
import numpy as np

from ingot.model.loops import ZERO, Array, exponential, largest_of, pointer, reordered
from ingot.model.team_loops import Task, for_team, share, vector


@reordered
def _exponentials(z_V: Array, largest: np.float32) -> np.float32:
    """z becomes e^(z − largest); returns the sum, which is a number if `largest` is."""
    total = largest * ZERO  # `exponential` can make a number of what is none
    for v in range(z_V.shape[0]):
        power = exponential(z_V[v] - largest)
        z_V[v] = power
        total += power
    return total


@reordered
def _scale(z_V: Array, factor: np.float32) -> None:
    for v in range(z_V.shape[0]):
        z_V[v] *= factor


@for_team
def differentiate(task: Task) -> None:
    """Logits [C, V], targets (int64), a, b or 0, log p, log Z; C, V."""
    chunk, vocabulary = task[6], task[7]
    targets_C = numba.carray(pointer(task[1], np.int64(0)), (chunk,))
    a_C, logprobs_C, normalisers_C = vector(task[2], chunk), vector(task[4], chunk), vector(task[5], chunk)
    first, last = share(chunk)
    for token in range(first, last):
        z_V = vector(task[0] + 4 * vocabulary * token, vocabulary)
        target, factor, largest = targets_C[token], -a_C[token], largest_of(z_V)
        hit = z_V[target]
        total = _exponentials(z_V, largest)
        normaliser = np.float64(largest) + math.log(np.float64(total))  # differences of log-probabilities are small
        if task[3] != 0:
            factor += np.float32(2) * vector(task[3], chunk)[token] * np.float32(normaliser)
        _scale(z_V, factor / total)
        z_V[target] += a_C[token]
        logprobs_C[token], normalisers_C[token] = np.float32(hit - normaliser), np.float32(normaliser)
