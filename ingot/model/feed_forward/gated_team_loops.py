"""numba: the loops of gated_team.py."""

from __future__ import annotations

import numpy as np

from ingot.model.loops import Array, contracted, exponential
from ingot.model.team_loops import Task, for_team, share, vector


@contracted
def _gate(gate_F: Array, up_F: Array, out_F: Array) -> None:
    for f in range(gate_F.shape[0]):
        out_F[f] = gate_F[f] * up_F[f] / (np.float32(1) + exponential(-gate_F[f]))


@contracted
def _differentiate(gate_F: Array, up_F: Array, given_F: Array, d_gate_F: Array, d_up_F: Array) -> None:
    one = np.float32(1)
    for f in range(gate_F.shape[0]):
        gate, given = gate_F[f], given_F[f]
        part = one / (one + exponential(-gate))
        d_gate_F[f] = given * up_F[f] * part * (one + gate * (one - part))
        d_up_F[f] = given * gate * part


@for_team
def forward(task: Task) -> None:
    """[gate | up], out; N, F."""
    width, row = task[3], 4 * task[3]
    first, last = share(task[2])
    for token in range(first, last):
        gate = task[0] + 2 * row * token
        _gate(vector(gate, width), vector(gate + row, width), vector(task[1] + row * token, width))


@for_team
def backward(task: Task) -> None:
    """[gate | up], d out, [d gate | d up]; N, F."""
    width, row = task[4], 4 * task[4]
    first, last = share(task[3])
    for token in range(first, last):
        gate, d_gate = task[0] + 2 * row * token, task[2] + 2 * row * token
        gate_F, up_F, given_F = vector(gate, width), vector(gate + row, width), vector(task[1] + row * token, width)
        _differentiate(gate_F, up_F, given_F, vector(d_gate, width), vector(d_gate + row, width))
