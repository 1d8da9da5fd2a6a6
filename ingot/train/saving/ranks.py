"""Coordinates the ranks of a run while they save, load or share work, over a process group of its own.

Saving goes on in the background while training uses its own groups, so it needs another group: gloo, on
the host. Every wait for other ranks has a deadline (DEADLINE): a rank that died is an error, not a hang.
A single process is a world of one and exchanges nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import torch
from torch import distributed
from torch.distributed import ProcessGroup

from ingot.train.parallel.layout import Layout
from ingot.workspace.errors import ArtifactError
from ingot.workspace.files import PARTIAL, atomic_folder

DEADLINE = timedelta(minutes=30)

Value = TypeVar("Value")


class Ranks:
    """All processes of the run. Every method is called by all of them."""

    def __init__(self, layout: Layout | None) -> None:
        self.group: ProcessGroup | None = None
        self.rank, self.world = 0, 1
        if layout is not None:
            self.group = distributed.new_group(backend="gloo", timeout=DEADLINE)
            self.rank, self.world = distributed.get_rank(), distributed.get_world_size()

    @property
    def first(self) -> bool:
        """Whether this process does what is done once."""
        return self.rank == 0

    def each(self, work: Callable[[], Value]) -> list[Value]:
        """Run `work` on every rank; returns all results when all are done. If one rank fails, all fail."""
        if self.group is None:
            return [work()]
        failure: Exception | None = None
        value: Value | None = None
        try:
            value = work()
        except Exception as error:  # noqa: BLE001 - raised again below, when the others know of it
            failure = error
        outcomes: list[tuple[Value, str | None]] = [None] * self.world  # type: ignore[list-item]
        problem = None if failure is None else f"{type(failure).__name__}: {failure}"
        distributed.all_gather_object(outcomes, (value, problem), group=self.group)
        if failure is not None:
            raise failure
        for rank, (_, problem) in enumerate(outcomes):
            if problem is not None:
                raise ArtifactError(f"rank {rank} failed: {problem}", fix="put right what is wrong there")
        return [value for value, _ in outcomes]

    def once(self, work: Callable[[], Value]) -> Value:
        """Run `work` on the first rank; every rank gets its result."""
        value: Value = self.each(lambda: work() if self.first else None)[0]  # type: ignore[assignment]
        return value

    def totals(self, *counts: int) -> list[int]:
        """The sum of each of these numbers over all ranks, on every rank."""
        if self.group is None:
            return list(counts)
        totals_N = torch.tensor(counts, dtype=torch.int64)
        distributed.all_reduce(totals_N, group=self.group)
        return list(map(int, totals_N.tolist()))

    @contextmanager
    def folder(self, path: Path) -> Iterator[Path]:
        """`atomic_folder` of all ranks: made by the first, filled by all, renamed when all are done."""
        with ExitStack() as stack:
            self.once(lambda: stack.enter_context(atomic_folder(path)))
            yield path.with_name(path.name + PARTIAL)
            self.each(lambda: None)
            self.once(stack.close)
