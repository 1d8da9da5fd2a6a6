"""Many loops in one call of the team, one after the other, written down once and run with tensors of any address.

A stage is a loop with the numbers of its task (team.py). Where these are memory, a plan has places: so many floats after the
beginning of a tensor that has a name. Whoever runs the plan says which tensors have the names this time; all that is left to do
then is to add their addresses. With tasks made anew a step of a model of 10M parameters took 9 ms longer: a product leaves
nothing of Python in the caches, and between two of them Python is several times as slow as usual.

Invariants: stages see what those before them wrote; all share one working memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from torch import Tensor

from ingot.model.rooms import new_room
from ingot.model.team import LINE, Number, Place, Stage, Work, bits, openmp

WORK, SELF = "working memory", "the plan"  # what addresses may refer to besides tensors


def room_for(sizes: Sequence[int]) -> int:
    """Floats that things of these sizes take side by side."""
    return sum(-(-size // LINE) * LINE for size in sizes)


class Plan:
    """Stages whose memory is places, for a number of threads."""

    def __init__(self, stages: Sequence[Stage], threads: int) -> None:
        from ingot.model.team_loops import run_stages

        self.threads, self.loop = threads, run_stages
        self.work = max((each.floats for stage in stages for each in stage if isinstance(each, Work)), default=0)
        # what run_stages wants: how many, every loop and where its task is; then come the tasks
        numbers = [len(stages)]
        tasks = 1 + 2 * len(stages)
        written: list[tuple[int, str]] = []  # which numbers are addresses, of what
        for loop, *task in stages:
            written.append((len(numbers) + 1, SELF))
            numbers += [loop.address, 8 * tasks]
            tasks += len(task)
        for _, *task in stages:
            for number in task:
                if isinstance(number, Place | Work):
                    written.append((len(numbers), number.name if isinstance(number, Place) else WORK))
                numbers.append(_offset(number))
        self.names = sorted({name for _, name in written} - {WORK, SELF})
        bases = {name: index for index, name in enumerate([*self.names, WORK, SELF])}
        self.numbers = np.array(numbers, dtype=np.int64)
        self.addresses = np.array([position for position, _ in written])
        self.bases = np.array([bases[name] for _, name in written])

    def run(self, tensors: Mapping[str, Tensor]) -> None:
        """Let every thread go through the stages. Tensors are contiguous; some may have names that no stage knows."""
        numbers, work = self.numbers.copy(), new_room(self.work)
        bases = [tensors[name].data_ptr() for name in self.names]
        bases += [work.data_ptr(), numbers.ctypes.data]
        numbers[self.addresses] += np.array(bases, dtype=np.int64)[self.bases]
        openmp().GOMP_parallel(self.loop.address, numbers.ctypes.data, self.threads, 0)


def _offset(number: Number) -> int:
    """A number of a task; of an address what is added to that of its tensor."""
    assert not isinstance(number, Tensor), "a plan is for tensors of any address"
    if isinstance(number, Place):
        return 4 * number.floats
    if isinstance(number, Work):
        return 0
    return bits(number) if isinstance(number, float) else number
