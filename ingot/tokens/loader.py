"""The order of pre-training data, as a pure function of (seed, step); and the batches that validation scores.

Row r of step s is row g = s R + r of the run. Its phase gives the mixture; the mixture's schedule gives its source and
the number i of rows of that source before it (`ingot.tokens.mixture`); of the source's n windows it is the one that the
permutation of epoch i // n puts at place i mod n (`ingot.tokens.permutation`). Nothing is remembered between steps, so
a resumed run, or one on another number of ranks, sees the same data without any saved state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Protocol

import numpy as np

from ingot.tokens.batch import Batch
from ingot.tokens.config import VALIDATION
from ingot.tokens.mixture import Apportionment
from ingot.tokens.permutation import Permutation
from ingot.tokens.shards import Shards, Source
from ingot.tokens.windows import make_rows, window_count
from ingot.workspace.errors import DataError, RecipeError


class PhaseLike(Protocol):
    """A stretch of training with one mixture: it lasts until a share of the steps and weighs sources by name."""

    @property
    def until(self) -> float: ...

    @property
    def weights(self) -> Mapping[str, float]: ...


class MixtureLoader:
    """Batches of a weighted mixture of sources. `batch(step)` depends on the arguments and the shards only."""

    def __init__(
        self,
        shards_folder: Path,
        phases: Sequence[PhaseLike],
        *,
        sequence_length: int,
        rows_per_step: int,
        total_steps: int,
        seed: int,
        verify: bool = True,
    ) -> None:
        """Open the shards; `verify` reads them once to compare checksums (skip it for corpora of terabytes)."""
        self.shards = Shards(shards_folder, verify=verify)
        self.sequence_length, self.rows_per_step, self.total_steps = sequence_length, rows_per_step, total_steps
        self.seed = seed
        self._schedules: list[tuple[int, Apportionment, dict[str, int]]] = []
        """For each phase: its first row, its schedule, and how many rows of each source came before it."""
        begin, before = 0, dict.fromkeys(self.shards.sources, 0)
        for phase in phases:
            end = round(phase.until * total_steps) * rows_per_step
            if end < begin:
                raise RecipeError("phases must end at rising shares of the steps", fix="sort the phases by `until`")
            _check_names(phase.weights, self.shards)
            schedule = Apportionment(phase.weights)
            self._schedules.append((begin, schedule, dict(before)))
            for name, count in schedule.counts(end - begin).items():
                before[name] += count
            begin = end
        if begin != total_steps * rows_per_step:
            raise RecipeError(
                f"the phases end at row {begin}, the run at {total_steps * rows_per_step}",
                fix="let the last phase last until 1",
            )
        self._drawn = {name: count for name, count in before.items() if count}
        self._windows = {name: self._count_windows(self.shards.source(name)) for name in self._drawn}
        self._permutation = lru_cache(maxsize=4 * len(self._drawn))(self._make_permutation)

    def batch(self, step: int, rank: int = 0, world: int = 1) -> Batch:
        """The rows of `step` that belong to `rank`: the ranks' rows in order are the rows of the whole batch."""
        if not 0 <= step < self.total_steps:
            raise ValueError(f"step {step} of a run of {self.total_steps}")
        if not 0 <= rank < world <= self.rows_per_step:
            raise ValueError(f"rank {rank} of {world} with {self.rows_per_step} rows a step")
        first, last = (self.rows_per_step * number // world for number in (rank, rank + 1))
        return make_rows([self._locate(*row) for row in self.rows(step)[first:last]], self.sequence_length)

    def rows(self, step: int) -> list[tuple[str, int]]:
        """Source of each row of the step, and how many rows of that source were drawn before it."""
        first = step * self.rows_per_step
        begin, schedule, before = next(entry for entry in reversed(self._schedules) if entry[0] <= first)
        return [(name, before[name] + index) for name, index in schedule.rows(first - begin, self.rows_per_step)]

    def epochs(self) -> dict[str, float]:
        """How often the whole run passes over each source: above about 4, repeated data is worth little."""
        return {name: self._drawn[name] / self._windows[name] for name in self._drawn}

    def _locate(self, name: str, index: int) -> tuple[Source, int]:
        epoch, place = divmod(index, self._windows[name])
        return self.shards.source(name), self._permutation(name, epoch)(place)

    def _make_permutation(self, name: str, epoch: int) -> Permutation:
        return Permutation(self._windows[name], f"{self.seed}/{name}/{epoch}")

    def _count_windows(self, source: Source) -> int:
        count = window_count(source, self.sequence_length)
        if count == 0:
            raise DataError(
                f"{len(source)} tokens do not fill a row of {self.sequence_length}",
                place=str(source.folder),
                fix="shorten sequence_length, or give the source more documents",
            )
        return count


def validation_batches(
    shards_folder: Path, sequence_length: int, rows: int, rows_per_batch: int = 16
) -> list[tuple[Batch, int]]:
    """At most `rows` rows of held-out text in batches, each with the bytes of text that its scored targets stand for.

    With these, bits per byte = Σ -log2 p(target) weight / Σ bytes. A document's first token has nothing before it, so
    it is not scored and its bytes are not counted. <|endoftext|> is scored (knowing where a text ends is part of the
    task) and stands for no bytes. If there are more windows than `rows`, evenly spaced ones are taken.
    """
    shards = Shards(shards_folder)
    source = shards.source(VALIDATION)
    count = window_count(source, sequence_length, partial=True)
    windows = range(count) if count <= rows else [number * count // rows for number in range(rows)]
    batches = []
    for start in range(0, len(windows), rows_per_batch):
        batch = make_rows([(source, window) for window in windows[start : start + rows_per_batch]], sequence_length)
        scored = batch.targets[batch.streams["weight"] > 0].numpy()
        batches.append((batch, int(np.asarray(shards.token_bytes)[scored].sum())))
    if not sum(size for _, size in batches):
        raise DataError("there is no text to score", place=str(source.folder), fix="hold out more or longer documents")
    return batches


def _check_names(weights: Mapping[str, float], shards: Shards) -> None:
    if VALIDATION in weights:
        raise RecipeError("a mixture may not train on `validation`", fix="remove it from the weights")
    for name in weights:
        shards.source(name)
