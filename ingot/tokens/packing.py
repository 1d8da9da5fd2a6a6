"""Packs sequences of different lengths into rows: best fit decreasing, and next fit.

Best fit decreasing: sequences are placed longest first, each into the row whose free space is smallest but sufficient; a
row is opened when none fits (Ding et al., "Fewer truncations improve language modeling", arXiv 2404.10830). Rows with equal
free space wait in one bucket, and only the spaces that occur are in a sorted list: there are at most `capacity` of them, however
many sequences there are. Next fit ("greedy") takes sequences as they come and opens a row when the next one does not fit.

Nothing is ever truncated here: a sequence longer than a row is an error that names it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from itertools import chain, repeat
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ingot.tokens.batch import PADDING_DOCUMENT, Batch, TokenSequence
from ingot.workspace.errors import DataError


def best_fit_rows(lengths: NDArray[np.int64], capacity: int) -> NDArray[np.int64]:
    """The row of each sequence, best fit decreasing; of rows that fit equally well the first one is taken."""
    _check_lengths(lengths, capacity)
    order = np.argsort(-lengths, kind="stable")
    placed: list[int] = []
    opened = 0
    spaces: list[int] = []  # the free spaces that occur, sorted
    rows_with: dict[int, list[int]] = {}  # a heap of the rows with this much free space
    for length in lengths[order].tolist():
        found = bisect_left(spaces, length)
        if found == len(spaces):
            row, left = opened, capacity - length
            opened += 1
        else:
            space = spaces[found]
            rows = rows_with[space]
            row, left = heappop(rows), space - length
            if not rows:
                del spaces[found], rows_with[space]
        placed.append(row)
        if left in rows_with:
            heappush(rows_with[left], row)
        elif left:  # a full row takes nothing more
            rows_with[left] = [row]
            insort(spaces, left)
    result = np.empty(len(lengths), dtype=np.int64)
    result[order] = placed
    return result


def next_fit_rows(lengths: NDArray[np.int64], capacity: int) -> NDArray[np.int64]:
    """The row of each sequence, next fit: rows hold neighbours, and a row is closed when the next one does not fit."""
    _check_lengths(lengths, capacity)
    ends = np.cumsum(lengths).tolist()
    bounds, used = [0], 0  # the first sequence of each row; the length of all rows before
    while bounds[-1] < len(ends):
        bounds.append(bisect_right(ends, used + capacity, lo=bounds[-1]))
        used = ends[bounds[-1] - 1]
    return np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))


def best_fit_decreasing(lengths: Sequence[int], capacity: int) -> list[list[int]]:
    """Rows as lists of indices into `lengths`, longest first, each row's total at most `capacity`."""
    sizes = np.asarray(lengths, dtype=np.int64)
    placed = best_fit_rows(sizes, capacity)
    rows: list[list[int]] = [[] for _ in range(int(placed.max(initial=-1)) + 1)]
    for index in np.argsort(-sizes, kind="stable").tolist():
        rows[placed[index]].append(index)
    return rows


def make_batch(sequences: Sequence[TokenSequence], capacity: int) -> Batch:
    """Pack all sequences into one batch; rows are as long as the fullest one. A sequence of n tokens takes n − 1 positions."""
    for index, sequence in enumerate(sequences):
        if len(sequence.tokens) < 2:
            raise DataError(f"sequence {index} has {len(sequence.tokens)} tokens; nothing can be predicted")
    rows = best_fit_decreasing([len(sequence.tokens) - 1 for sequence in sequences], capacity)
    length = max(sum(len(sequences[index].tokens) - 1 for index in row) for row in rows)
    placed = [sequences[index] for row in rows for index in row]  # in the order of the batch
    sizes = np.array([len(sequence.tokens) - 1 for sequence in placed])
    counts = np.array([len(row) for row in rows])
    begins = np.cumsum(sizes) - sizes
    row_starts = begins[np.cumsum(counts) - counts]
    shifts = np.repeat(np.arange(len(rows)) * length - row_starts, counts)  # from a place among all to one in the batch
    positions = np.arange(sizes.sum()) - np.repeat(begins, sizes)
    where = np.arange(sizes.sum()) + np.repeat(shifts, sizes)
    documents = np.repeat(np.arange(len(placed)) - np.repeat(np.cumsum(counts) - counts, counts), sizes)

    def fill(values: NDArray[Any], empty: int = 0) -> Tensor:  # by numpy: torch would wake all its threads for it
        filled = np.full(len(rows) * length, empty, dtype=values.dtype)
        filled[where] = values
        return torch.from_numpy(filled).view(len(rows), length)

    def integers(lists: Iterable[Sequence[int]]) -> NDArray[np.int64]:
        return np.fromiter(chain.from_iterable(lists), np.int64, sizes.sum())

    streams = {}
    for name in sorted({name for sequence in sequences for name in sequence.streams}):
        listed = (one.streams[name][1:] if name in one.streams else repeat(0.0, len(one.tokens) - 1) for one in placed)
        streams[name] = fill(np.fromiter(chain.from_iterable(listed), np.float32, sizes.sum()))
    like = {name: vector for sequence in sequences for name, vector in sequence.vectors.items()}
    vectors = {name: one.new_zeros(len(rows), length, *one.shape[1:]) for name, one in like.items()}
    for sequence, row, start in zip(placed, np.repeat(np.arange(len(rows)), counts), begins + shifts, strict=True):
        for name, vector in sequence.vectors.items():
            vectors[name][row, start - row * length :][: len(vector) - 1] = vector[1:]
    return Batch(
        fill(integers(sequence.tokens[:-1] for sequence in placed)),
        fill(integers(sequence.tokens[1:] for sequence in placed)),
        fill(positions),
        fill(documents, PADDING_DOCUMENT),
        streams,
        vectors=vectors,
    )


def _check_lengths(lengths: NDArray[np.int64], capacity: int) -> None:
    too_long = np.flatnonzero(lengths > capacity)
    if too_long.size:
        raise DataError(
            f"sequence {too_long[0]} needs {lengths[too_long[0]]} positions, a row has {capacity}",
            fix="raise the stage's sequence_length, or shorten or drop the sequence",
        )
