"""The order of pre-training data, as a pure function of (seed, step); and the batches that validation scores.

Row r of step s is row g = rows_before(s) + r of the run. The phase it belongs to gives its source and the number i of rows of
that source before it (`phases.py`). Every source is an endless sequence of rows, epoch after epoch, each epoch in an order
of its own, of which row i can be asked for directly: windows of the token stream (`windows.py`) or documents packed whole
(`packed.py`). Nothing is remembered between steps but the rows where a phase was ended by hand (`next_phase`), so a resumed
run, or one on another number of ranks, sees the same data.

`books@32768+` in the weights of a phase is the source `books` without its documents of less than 32,768 tokens: a source of
its own, to give long documents a share of their own when the context is extended.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from ingot.tokens.batch import Batch
from ingot.tokens.config import VALIDATION
from ingot.tokens.pack_index import PackIndex
from ingot.tokens.packed import PackedRows
from ingot.tokens.phases import BatchSchedule, PhaseLike, PhaseSchedule
from ingot.tokens.rows import Row, make_rows
from ingot.tokens.shards import Shards
from ingot.tokens.windows import WindowRows, window, window_count
from ingot.workspace.errors import ArtifactError, DataError, RecipeError

Packing = Literal["split", "greedy", "best_fit"]


class RowSequence(Protocol):
    """The endless sequence of a source's rows."""

    per_epoch: int
    padding: float

    def row(self, index: int) -> Row: ...


class MixtureLoader:
    """Batches of a weighted mixture of sources. `batch(step)` depends on the arguments and the shards only."""

    def __init__(
        self,
        shards_folder: Path,
        phases: Sequence[PhaseLike],
        *,
        sequence_length: int,
        batches: BatchSchedule,
        total_steps: int,
        seed: int,
        packing: Packing = "split",
        verify: bool = True,
        index: PackIndex | None = None,
    ) -> None:
        """Open the shards; `verify` reads them once to compare checksums (skip it for corpora of terabytes).

        `index`: the cache of the numbers of packed rows, so that they are not counted at every start.
        """
        self.shards = Shards(shards_folder, verify=verify)
        self.sequence_length, self.batches, self.total_steps = sequence_length, batches, total_steps
        self.schedule = PhaseSchedule(phases, batches, sequence_length=sequence_length, total_steps=total_steps)
        self.source_names = tuple(self.schedule.names)
        """The source that each number in `Batch.sources` stands for."""
        for name in {name for phase in phases for name in phase.weights}:
            self.shards.source(name.partition("@")[0])  # a misspelt name is an error even where its weight is 0
        self._index = index
        self._numbers = {name: number for number, name in enumerate(self.source_names)}
        self._sequences = {name: self._open(name, packing, f"{seed}/{name}") for name in self.source_names}

    def batch(self, step: int, rank: int = 0, world: int = 1) -> Batch:
        """The rows of `step` that belong to `rank`: the ranks' rows in order are the rows of the whole batch."""
        if step < 0 or not 0 <= rank < world:
            raise ValueError(f"step {step}, rank {rank} of {world}")
        count = self.batches.rows(step)
        if count < world:
            raise RecipeError(
                f"step {step} has {count} rows for {world} data-parallel ranks",
                fix="raise batch_tokens (or the start of batch_warmup), or use fewer ranks",
            )
        first, last = (count * number // world for number in (rank, rank + 1))
        drawn = self.schedule.rows(self.batches.rows_before(step) + first, last - first)
        rows = [self._sequences[name].row(index) for name, index in drawn]
        return make_rows(rows, self.sequence_length, [self._numbers[name] for name, _ in drawn])

    def rows(self, step: int) -> list[tuple[str, int]]:
        """Source of each row of the step, and how many rows of that source were drawn before it."""
        return self.schedule.rows(self.batches.rows_before(step), self.batches.rows(step))

    def row(self, name: str, index: int) -> Row:
        """The row of a source that `rows` calls `index`: its segments of the source's stream."""
        return self._sequences[name].row(index)

    def next_phase(self, row: int) -> None:
        """End the phase in force before `row`; batches already made of later rows are then invalid."""
        self.schedule.next_phase(row)

    def state(self) -> dict[str, Any]:
        """What a checkpoint must carry: where phases were ended by `next_phase`, and how many rows packed sources have."""
        return {**self.schedule.state(), "packed_rows": self._packed_rows()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint's `state()`. Fails if documents would now be packed into different rows."""
        if state.get("packed_rows", {}) != self._packed_rows():
            raise ArtifactError(
                f"the run was begun with packed rows {state.get('packed_rows', 'of an older version')}; now they are "
                f"{self._packed_rows()}, in another order: some documents would come twice, and others never",
                fix="go on with the version of ingot and the shards that the run was begun with, or begin it again",
            )
        self.schedule.restore(state)

    def _packed_rows(self) -> dict[str, int]:
        sequences = self._sequences.items()
        return {name: sequence.per_epoch for name, sequence in sequences if isinstance(sequence, PackedRows)}

    def epochs(self) -> dict[str, float]:
        """How often the whole run passes over each source: above about 4, repeated data is worth little."""
        drawn = self.schedule.counts(self.batches.rows_before(self.total_steps))
        return {name: count / self._sequences[name].per_epoch for name, count in drawn.items()}

    def rows_of(self, name: str) -> int:
        """The rows of one pass over a source."""
        return self._sequences[name].per_epoch

    def padding(self) -> dict[str, float]:
        """Share of each source's positions that hold no token."""
        return {name: sequence.padding for name, sequence in self._sequences.items()}

    def _open(self, name: str, packing: Packing, key: str) -> RowSequence:
        """The rows of a source or, for `NAME@TOKENS+`, of its long documents."""
        base, at, limit = name.partition("@")
        if base == VALIDATION:
            raise RecipeError("a mixture may not train on `validation`", fix="remove it from the weights")
        if at and not re.fullmatch(r"[0-9]+\+", limit):
            raise RecipeError(
                f"source {name!r}: what follows @ is not a length", fix=f"write {base}@32768+, for instance"
            )
        if at and packing == "split":
            raise RecipeError(
                f"{name!r} chooses documents by length, and rows cut from the stream ignore documents",
                fix="set packing to best_fit",
            )
        source = self.shards.source(base)
        if packing == "split":
            return WindowRows(source, self.sequence_length, key)
        minimum = int(limit[:-1]) if at else 0
        return PackedRows(source, self.sequence_length, key, packing, minimum, self._index)


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
    numbers = range(count) if count <= rows else [number * count // rows for number in range(rows)]
    batches = []
    for start in range(0, len(numbers), rows_per_batch):
        batch = make_rows(
            [window(source, number, sequence_length) for number in numbers[start : start + rows_per_batch]],
            sequence_length,
        )
        scored = batch.targets[batch.streams["weight"] > 0].numpy()
        batches.append((batch, int(np.asarray(shards.token_bytes)[scored].sum())))
    if not sum(size for _, size in batches):
        raise DataError("there is no text to score", place=str(source.folder), fix="hold out more or longer documents")
    return batches
