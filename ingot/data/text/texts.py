"""A column of texts as CPU kernels see it: all bytes in one array, and where each text begins.

    data     uint8   UTF-8 of all texts, end to end
    offsets  int64   text i is data[offsets[i] : offsets[i + 1]]

Invariant: taken from Arrow without a copy (one chunk, 64-bit offsets); a missing text (null) is an empty one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow
from numpy.typing import NDArray


@dataclass(frozen=True)
class Texts:
    """The bytes of a column of texts."""

    data: NDArray[np.uint8]
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def bytes(self) -> int:
        """Size of all texts in UTF-8."""
        return int(self.offsets[-1] - self.offsets[0])

    def __getitem__(self, index: int) -> str:
        return self.data[self.offsets[index] : self.offsets[index + 1]].tobytes().decode("utf-8")

    @classmethod
    def of(cls, column: pyarrow.Array | pyarrow.ChunkedArray | list[str]) -> Texts:
        """The texts of an Arrow column (string or large_string), without a copy where there is one chunk."""
        if isinstance(column, list):
            column = pyarrow.array(column, pyarrow.large_string())
        if isinstance(column, pyarrow.ChunkedArray):  # combine_chunks copies even a single chunk
            column = (
                column.chunk(0)
                if column.num_chunks == 1
                else pyarrow.concat_arrays(column.chunks or [pyarrow.array([], column.type)])
            )
        column = column.cast(pyarrow.large_string())
        if column.null_count:
            column = column.fill_null("")
        _, offsets, data = column.buffers()
        if len(column) == 0 or offsets is None:
            return cls(np.zeros(0, np.uint8), np.zeros(1, np.int64))
        starts = np.frombuffer(offsets, np.int64)[column.offset : column.offset + len(column) + 1]
        return cls(np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8), starts)

    def column(self) -> pyarrow.LargeStringArray:
        """The texts as an Arrow column; the inverse of `of`."""
        offsets = np.ascontiguousarray(self.offsets)
        buffers = [None, pyarrow.py_buffer(offsets), pyarrow.py_buffer(self.data)]
        return pyarrow.Array.from_buffers(pyarrow.large_string(), len(self), buffers)


def rewritten(
    column: pyarrow.ChunkedArray | pyarrow.Array, rows: NDArray[np.int64], change: Callable[[str], str]
) -> pyarrow.LargeStringArray:
    """The column with `change` applied to `rows` (ascending)."""
    texts = Texts.of(column)
    parts: list[NDArray[np.uint8]] = []
    sizes = np.diff(texts.offsets)
    copied = 0
    for row in rows:
        before = texts[int(row)]
        after = change(before)
        if after is before or after == before:
            continue
        new = np.frombuffer(after.encode("utf-8"), np.uint8)
        parts += [texts.data[texts.offsets[copied] : texts.offsets[row]], new]
        sizes[row] = len(new)
        copied = int(row) + 1
    if not parts:
        return texts.column()
    parts.append(texts.data[texts.offsets[copied] : texts.offsets[-1]])
    offsets = np.zeros(len(texts) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return Texts(np.concatenate(parts), offsets).column()
