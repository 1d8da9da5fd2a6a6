"""Rows packed from whole, shuffled documents of a source, in memory of 8 bytes for every 65,000 documents.

A document of n tokens takes n − 1 positions (its last token is only predicted). A longer one than a row is cut into full
rows and a rest; everything else stays whole (Ding et al., "Fewer truncations improve language modeling", arXiv 2404.10830).

The documents are shuffled by one keyed permutation and dealt into groups of about 65,000; each group is packed by itself
(`packing.py`). A group is a random sample of the whole source, so drawing its rows one after the other shuffles as well as
drawing from everywhere, and only one group has to be packed at a time. Epoch e shows the groups in the order of its own
permutation, and the rows of each group in another: those of a long document are spread over its group. To find a row by its
number it takes one number per group, the rows that it fills; these are counted once, by packing every group, and cached
(pack_index.py). A packing is made when it is needed and forgotten again.

Invariants: in each epoch every position of every document occurs exactly once; row i is a pure function of (source, length,
packing, key, i). A document of a single token has nothing to predict and takes no position.

`minimum` makes a view of the source: only documents of at least so many tokens are packed, for upsampling long documents.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ingot.tokens.pack_index import PackIndex
from ingot.tokens.packing import best_fit_rows, next_fit_rows
from ingot.tokens.permutation import Permutation
from ingot.tokens.rows import Row
from ingot.tokens.shards import MappedSource
from ingot.workspace.errors import ArtifactError, DataError

VERSION = 1
"""Of which documents share a row: raise it with every change here or in packing.py, and rows are counted again."""
METHODS = {"best_fit": best_fit_rows, "greedy": next_fit_rows}
GROUP_DOCUMENTS = 1 << 16  # enough that best fit leaves less than 0.01 % padding on web documents at 8k
GROUP_SEGMENTS = 1 << 18  # of a group of average documents: bounds the memory where documents are books of many rows


@dataclass(frozen=True)
class PackedGroup:
    """A packed group: row r holds the segments bounds[r] .. bounds[r + 1] − 1."""

    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    bounds: NDArray[np.int64]


class PackedRows:
    """The endless sequence of a source's packed rows: epoch after epoch, each in an order of its own."""

    def __init__(
        self,
        source: MappedSource,
        length: int,
        key: str,
        packing: Literal["best_fit", "greedy"],
        minimum: int = 0,
        index: PackIndex | None = None,
    ) -> None:
        self.source, self.length, self.minimum = source, length, minimum
        self._key, self._method = key, METHODS[packing]
        count = len(source.starts)
        self._group_documents = max(1, min(GROUP_DOCUMENTS, GROUP_SEGMENTS * length * count // len(source)))
        self._documents = Permutation(count, f"{key}/documents")
        made_from = [VERSION, source.identity, count, len(source), length, key, packing, minimum, self._group_documents]
        counts = (index or PackIndex()).counts(made_from, -(-count // self._group_documents), self._count)
        self._rows_of = counts[0].copy()
        """How many rows each group fills: the one table, 8 bytes for every group."""
        positions = int(counts[1].sum())
        self.per_epoch = int(self._rows_of.sum())
        if self.per_epoch == 0:
            raise DataError(
                f"no document has {max(minimum, 2)} tokens",
                place=str(source.folder),
                fix="ask for shorter documents, or give the source longer ones",
            )
        self.padding = 1 - positions / (self.per_epoch * length)
        self._group = lru_cache(maxsize=2)(self._checked)
        self._epoch = lru_cache(maxsize=2)(self._order)
        self._order_in = lru_cache(maxsize=4)(
            lambda epoch, group: Permutation(int(self._rows_of[group]), f"{key}/{epoch}/{group}")
        )

    def row(self, index: int) -> Row:
        """Row `index` of the sequence."""
        epoch, index = divmod(index, self.per_epoch)
        groups, ends = self._epoch(epoch)
        at = int(np.searchsorted(ends, index, side="right"))
        number = int(groups[at])
        row = self._order_in(epoch, number)(index - int(ends[at] - self._rows_of[number]))
        group = self._group(number)
        segments = slice(group.bounds[row], group.bounds[row + 1])
        starts = group.starts[segments]
        return Row(self.source, starts, group.sizes[segments], np.zeros(len(starts), dtype=np.bool_))

    def _order(self, epoch: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The groups in the order of this epoch, and the rows up to the end of each."""
        groups = Permutation(len(self._rows_of), f"{self._key}/{epoch}").many(np.arange(len(self._rows_of)))
        return groups, np.cumsum(self._rows_of[groups])

    def _count(self, number: int) -> tuple[int, int]:
        group = self._pack(number)
        return len(group.bounds) - 1, int(group.sizes.sum())

    def _checked(self, number: int) -> PackedGroup:
        """A packed group with as many rows as were counted: with another number, every later row would change."""
        group = self._pack(number)
        if len(group.bounds) - 1 != self._rows_of[number]:
            raise ArtifactError(
                f"group {number} fills {len(group.bounds) - 1} rows, and {self._rows_of[number]} were counted before",
                place=str(self.source.folder),
                fix="the documents have changed, or how they are packed: remove `packing` from the stage's folder",
            )
        return group

    def _pack(self, number: int) -> PackedGroup:
        starts, sizes = self._segments(number)
        rows = self._method(sizes, self.length)
        order = np.argsort(rows, kind="stable")  # within a row the segments stay in shuffled order
        bounds = np.concatenate(([0], np.cumsum(np.bincount(rows)))).astype(np.int64)
        return PackedGroup(starts[order], sizes[order], bounds)

    def _segments(self, number: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """First position and size of the group's segments: its documents, long ones cut."""
        first = number * self._group_documents
        last = min(first + self._group_documents, self._documents.size)
        begins, ends = self.source.bounds(self._documents.many(np.arange(first, last)))
        wanted = ends - begins >= max(self.minimum, 2)
        begins, sizes = begins[wanted], (ends - begins)[wanted] - 1
        cuts = -(-sizes // self.length)  # segments of each document
        cut = np.arange(cuts.sum()) - np.repeat(np.cumsum(cuts) - cuts, cuts)  # 0, 1, … within each document
        return (
            np.repeat(begins, cuts) + cut * self.length,
            np.minimum(np.repeat(sizes, cuts) - cut * self.length, self.length),
        )
