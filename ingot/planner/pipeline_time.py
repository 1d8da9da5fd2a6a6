"""Estimates how much longer a pipeline's step takes than the work of one rank: idle slots, and waits for sends.

P ranks with V stages each and M passes a step, a backward pass twice as long as a forward one, in the order of the trainer's
timetable (train/parallel/timetable.py), where a rank goes on as soon as what it needs is there:

    1F1B, V = 1            time / work = (M + P − 1) / M;  sends waited for: 2·(M + P − 1)·(P − 1)/P
    interleaved, V > 1     time / work = (V·M + P − 1) / (V·M) if M is a multiple of P;  sends waited for: 2·(P·V − 1)

Why the sends: in 1F1B a rank takes what its neighbour has just made. The longest loop, down P ranks and up again, has 2(P − 1)
sends and takes P micro-batches on. Interleaved, a rank has begun twice as many passes as are on their way, so that sends hide
behind them; only the first micro-batch waits for each on its way down, and the last one on its way up.

A last group of passes that is not full (M no multiple of P, V > 1) leaves gaps that no formula here covers: it is simulated.
The groups before it do not matter for that, so the simulation has only two groups.
"""

from __future__ import annotations

from functools import lru_cache

from ingot.train.parallel.timetable import Action, timetable

FORWARD, BACKWARD = 1, 2


def stretch(ranks: int, per_rank: int, micros: int) -> float:
    """The time of all passes of a step over the time that a rank works on them."""
    if per_rank == 1 or micros % ranks == 0:
        return (per_rank * micros + ranks - 1) / (per_rank * micros)
    rest = micros % ranks
    work, full = (FORWARD + BACKWARD) * per_rank, micros - rest
    if full == 0:
        return _walk(ranks, per_rank, rest) / (work * rest)
    groups = (FORWARD + BACKWARD) * (per_rank * full + ranks - 1)
    further = _walk(ranks, per_rank, ranks + rest) - _walk(ranks, per_rank, ranks)
    return (groups + further) / (work * micros)


def sends(ranks: int, per_rank: int, micros: int) -> float:
    """How many sends, each of the states of one pass between two stages, a step waits for."""
    if per_rank == 1:
        return 2 * (micros + ranks - 1) * (ranks - 1) / ranks
    return 2 * (ranks * per_rank - 1)


@lru_cache(maxsize=1024)
def _walk(ranks: int, per_rank: int, micros: int) -> int:
    """The time at which the last rank has finished."""
    ended = dict[Action, int]()
    free = [0] * ranks
    for slot in timetable(ranks, per_rank, micros):
        for rank, action in enumerate(slot):
            if action is not None:
                needed = action.needs(ranks * per_rank)
                begin = free[rank] if needed is None else max(free[rank], ended[needed])
                free[rank] = ended[action] = begin + (FORWARD if action.forward else BACKWARD)
    return max(free)
