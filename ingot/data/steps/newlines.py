"""The step `newlines` shortens runs of newlines. DCLM and OLMo 3 allow two."""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import Field

from ingot.data.rules.kernels import shorten
from ingot.data.step import PerText
from ingot.data.text.texts import Texts


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
