"""Change a few texts of a column; the others are copied as bytes, without becoming Python strings."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ingot.data.text.texts import Texts

if TYPE_CHECKING:
    import pyarrow


def rewritten(
    column: pyarrow.ChunkedArray | pyarrow.Array, rows: NDArray[np.int64], change: Callable[[str], str]
) -> pyarrow.LargeStringArray:
    """The column with `change` applied to `rows` (ascending)."""
    texts = Texts.of(column)
    pieces: list[NDArray[np.uint8]] = []
    sizes = np.diff(texts.offsets)
    copied = 0
    for row in rows:
        before = texts[int(row)]
        after = change(before)
        if after is before or after == before:
            continue
        new = np.frombuffer(after.encode("utf-8"), np.uint8)
        pieces += [texts.data[texts.offsets[copied] : texts.offsets[row]], new]
        sizes[row] = len(new)
        copied = int(row) + 1
    if not pieces:
        return texts.column()
    pieces.append(texts.data[texts.offsets[copied] : texts.offsets[-1]])
    offsets = np.zeros(len(texts) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return Texts(np.concatenate(pieces), offsets).column()
