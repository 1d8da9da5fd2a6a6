"""The step `newlines` shortens runs of newlines. DCLM and OLMo 3 allow two."""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import Field

from ingot.data.native import Bytes, Offsets, loop
from ingot.data.step import PerText
from ingot.data.text.lines import next_newline
from ingot.data.text.spans import copy_span
from ingot.data.text.texts import Texts


@loop
def shorten(data: Bytes, offsets: Offsets, most: int, result: Bytes, result_offsets: Offsets) -> int:
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


class NewlinesStep(PerText):
    """Cut runs of newlines (DCLM, OLMo 3). Rewrites the text."""

    rate = 98

    max_consecutive: int = Field(default=2, ge=1, le=1000, description="newlines that may follow each other")

    def writes(self) -> tuple[str, ...]:
        return ("text", "_removed_newlines")

    def measure(self, texts: Texts) -> dict[str, Any]:
        result, offsets = np.empty(texts.bytes, np.uint8), np.zeros(len(texts) + 1, np.int64)
        size = shorten(texts.data, texts.offsets, self.max_consecutive, result, offsets)
        removed = np.diff(texts.offsets) - np.diff(offsets)
        return {"text": Texts(result[:size], offsets), "_removed_newlines": removed}
