"""Rows of training data: a source's token stream cut into windows.

Window w of a source reads the tokens [w L, w L + L] of its stream: L inputs and the target of each. Neighbouring
windows share one token, so every token but the very first is a target exactly once. A window may begin inside a
document; what it holds of each document is a document of its own: positions restart, and attention must not cross.

`weight` is 1 where the next token belongs to the same document and 0 elsewhere: after a document's <|endoftext|> and in
padding. The first token of a document is therefore never scored.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from ingot.tokens.batch import PADDING_DOCUMENT, Batch
from ingot.tokens.shards import Source


def window_count(source: Source, length: int, partial: bool = False) -> int:
    """How many full windows the source has; with `partial` also a last one that is shorter."""
    targets = len(source) - 1
    return -(-targets // length) if partial else targets // length


def make_rows(rows: Sequence[tuple[Source, int]], length: int) -> Batch:
    """A batch of the given windows, one a row; a window that the stream's end cuts short is padded."""
    shape = (len(rows), length)
    tokens, targets, positions = (np.zeros(shape, dtype=np.int64) for _ in range(3))
    documents = np.full(shape, PADDING_DOCUMENT, dtype=np.int64)
    weight = np.zeros(shape, dtype=np.float32)
    for row, (source, window) in enumerate(rows):
        start = window * length
        ids = source.read(start, start + length + 1)
        numbers, offsets = _documents(source, start, len(ids))
        inputs = len(ids) - 1
        same = numbers[1:] == numbers[:-1]
        tokens[row, :inputs] = ids[:-1]
        targets[row, :inputs] = np.where(same, ids[1:], 0)
        positions[row, :inputs] = offsets[:-1]
        documents[row, :inputs] = numbers[:-1]
        weight[row, :inputs] = same
    return Batch(
        torch.from_numpy(tokens),
        torch.from_numpy(targets),
        torch.from_numpy(positions),
        torch.from_numpy(documents),
        {"weight": torch.from_numpy(weight)},
    )


def _documents(source: Source, start: int, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For `count` tokens from `start`: the number of each one's document within the window, and its place in it."""
    first = int(np.searchsorted(source.starts, start, side="right")) - 1
    last = int(np.searchsorted(source.starts, start + count, side="left"))
    begins = np.maximum(np.asarray(source.starts[first:last]) - start, 0)
    numbers = np.repeat(np.arange(len(begins)), np.diff(begins, append=count))
    return numbers, np.arange(count) - begins[numbers]
