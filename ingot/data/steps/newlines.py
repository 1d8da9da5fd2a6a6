"""No more than so many newlines one after the other; the rest is cut. DCLM and OLMo 3 keep two."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from ingot.data.step import PerDocument

if TYPE_CHECKING:
    import pyarrow


class NewlinesStep(PerDocument):
    """Cut runs of newlines (DCLM, OLMo 3). Rewrites the text."""

    rate = 98

    max_consecutive: int = Field(default=2, ge=1, le=1000, description="newlines that may follow each other")

    def writes(self) -> tuple[str, ...]:
        return ("text", "_removed_newlines")

    def annotate(self, documents: pyarrow.Table) -> dict[str, pyarrow.Array]:
        import numpy as np
        import pyarrow

        from ingot.data.rules.kernels import shorten
        from ingot.data.text.texts import Texts

        texts = Texts.of(documents.column("text"))
        result, offsets = np.empty(texts.bytes, np.uint8), np.zeros(len(texts) + 1, np.int64)
        size = shorten(texts.data, texts.offsets, self.max_consecutive, result, offsets)
        removed = np.diff(texts.offsets) - np.diff(offsets)
        return {"text": Texts(result[:size], offsets).column(), "_removed_newlines": pyarrow.array(removed)}
