"""Cuts a source's token stream into windows (concatenate and split): no padding, document boundaries are ignored.

Window w reads the tokens [w L, w L + L] of the stream: L positions, and the target of the last. Neighbouring windows share one
token, so every token but the very first is a target exactly once in an epoch, unless it begins a document. A window may begin
inside a document. Epoch e shows all windows in the order of its own permutation.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ingot.tokens.permutation import Permutation
from ingot.tokens.rows import Row
from ingot.tokens.shards import MappedSource
from ingot.workspace.errors import DataError


def window_count(source: MappedSource, length: int, partial: bool = False) -> int:
    """How many full windows the source has; with `partial` also a last one that is shorter."""
    targets = len(source) - 1
    return -(-targets // length) if partial else targets // length


def window(source: MappedSource, number: int, length: int) -> Row:
    """The row of one window; the last one may be cut short by the stream's end."""
    start = number * length
    stop = min(start + length, len(source) - 1)
    first = int(source.starts.searchsorted(start, side="right")) - 1
    last = int(source.starts.searchsorted(stop, side="left"))
    begins = source.starts[first:last].copy()
    begins[0] = start  # its first document may have begun before
    sizes = np.append(begins[1:], stop) - begins
    ends_document = np.ones(len(begins), dtype=np.bool_)
    ends_document[-1] = last < len(source.starts) and source.starts[last] == stop
    return Row(source, begins, sizes, ends_document)


class WindowRows:
    """The endless sequence of a source's windows: epoch after epoch, each in an order of its own."""

    padding = 0.0
    """Share of positions that hold no token."""

    def __init__(self, source: MappedSource, length: int, key: str) -> None:
        self.source, self.length = source, length
        self.per_epoch = window_count(source, length)
        if self.per_epoch == 0:
            raise DataError(
                f"{len(source)} tokens do not fill a row of {length}",
                place=str(source.folder),
                fix="shorten sequence_length, or give the source more documents",
            )
        self._permutation = lru_cache(maxsize=4)(lambda epoch: Permutation(self.per_epoch, f"{key}/{epoch}"))

    def row(self, index: int) -> Row:
        """Row `index` of the sequence."""
        epoch, index = divmod(index, self.per_epoch)
        return window(self.source, self._permutation(epoch)(index), self.length)
