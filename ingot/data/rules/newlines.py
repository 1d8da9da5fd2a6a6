"""No more than so many newlines one after the other; the rest is cut. DCLM and OLMo 3 keep two."""

from __future__ import annotations

import numpy as np
import pyarrow

from ingot.data.native import loop
from ingot.data.rules.config import NewlinesStep
from ingot.data.step import PerDocument
from ingot.data.text.arrays import Bytes, Places
from ingot.data.text.lines import next_newline
from ingot.data.text.spans import copy_span
from ingot.data.text.texts import Texts


@loop
def _shorten(data: Bytes, offsets: Places, most: int, result: Bytes, result_offsets: Places) -> int:
    """Write the texts without the newlines beyond `most` in a row; the number of bytes."""
    size = 0
    for text in range(len(offsets) - 1):
        result_offsets[text] = size
        start, stop = offsets[text], offsets[text + 1]
        at = start
        while at < stop:
            at, _ = next_newline(data, at, stop)
            first = at
            while at < stop and data[at] == 0x0A:
                at += 1
            if at - first > most:
                size = copy_span(data, start, first + most, result, size)
                start = at
        size = copy_span(data, start, stop, result, size)
    result_offsets[len(offsets) - 1] = size
    return size


class Newlines(PerDocument[NewlinesStep]):
    """See the module."""

    def annotate(self, documents: pyarrow.Table) -> dict[str, pyarrow.Array]:
        """See PerDocument."""
        texts = Texts.of(documents.column("text"))
        result, offsets = np.empty(texts.bytes, np.uint8), np.zeros(len(texts) + 1, np.int64)
        size = _shorten(texts.data, texts.offsets, self.config.max_consecutive, result, offsets)
        removed = np.diff(texts.offsets) - np.diff(offsets)
        return {"text": Texts(result[:size], offsets).column(), "_removed_newlines": pyarrow.array(removed)}
