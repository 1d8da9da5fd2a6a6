"""Packing sequences of different lengths into rows, best fit decreasing.

Sequences are placed longest first, each into the row whose free space is smallest but sufficient; a row is opened when
none fits (Ding et al., "Fewer truncations improve language modeling", arXiv 2404.10830). Nothing is ever truncated here:
a sequence longer than a row is an error that names it.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence as SequenceOf

import torch

from ingot.tokens.batch import PADDING_DOCUMENT, Batch, Sequence
from ingot.workspace.errors import DataError


def best_fit_decreasing(lengths: SequenceOf[int], capacity: int) -> list[list[int]]:
    """Rows as lists of indices into `lengths`, each row's total at most `capacity`."""
    rows: list[list[int]] = []
    free: list[tuple[int, int]] = []  # (free space, row), sorted: the first entry that is large enough fits best
    for index in sorted(range(len(lengths)), key=lambda index: (-lengths[index], index)):
        length = lengths[index]
        if length > capacity:
            raise DataError(
                f"sequence {index} needs {length} positions, a row has {capacity}",
                fix="raise the stage's sequence_length, or shorten or drop the sequence",
            )
        place = bisect.bisect_left(free, (length, -1))
        if place == len(free):
            rows.append([index])
            bisect.insort(free, (capacity - length, len(rows) - 1))
        else:
            space, row = free.pop(place)
            rows[row].append(index)
            bisect.insort(free, (space - length, row))
    return rows


def make_batch(sequences: SequenceOf[Sequence], capacity: int) -> Batch:
    """Pack all sequences into one batch; rows are as long as the fullest one. A sequence of n tokens takes n − 1 places."""
    for index, sequence in enumerate(sequences):
        if len(sequence.tokens) < 2:
            raise DataError(f"sequence {index} has {len(sequence.tokens)} tokens; nothing can be predicted")
    rows = best_fit_decreasing([len(sequence.tokens) - 1 for sequence in sequences], capacity)
    length = max(sum(len(sequences[index].tokens) - 1 for index in row) for row in rows)
    names = sorted({name for sequence in sequences for name in sequence.streams})
    tokens = torch.zeros(len(rows), length, dtype=torch.int64)
    targets, positions = torch.zeros_like(tokens), torch.zeros_like(tokens)
    documents = torch.full_like(tokens, PADDING_DOCUMENT)
    streams = {name: torch.zeros(len(rows), length) for name in names}
    for number, row in enumerate(rows):
        start = 0
        for document, index in enumerate(row):
            sequence = sequences[index]
            end = start + len(sequence.tokens) - 1
            ids = torch.tensor(sequence.tokens, dtype=torch.int64)
            tokens[number, start:end] = ids[:-1]
            targets[number, start:end] = ids[1:]
            positions[number, start:end] = torch.arange(end - start)
            documents[number, start:end] = document
            for name, values in sequence.streams.items():
                streams[name][number, start:end] = torch.tensor(values[1:], dtype=torch.float32)
            start = end
    return Batch(tokens, targets, positions, documents, streams)
