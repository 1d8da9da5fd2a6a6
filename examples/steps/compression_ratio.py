"""The step `compression_ratio` bounds how far gzip shrinks a long text.

Templates and tables shrink too much, noise and encoded data too little.

    ratio  =  bytes after gzip / bytes          of texts of at least `min_bytes`; the others have none and stay

Level 1 is three times as fast as gzip's default, 6, and leaves texts about a sixth larger (0.39 instead of 0.34 for
textbooks). OLMo 3 bounds the ratio of its longest documents from both sides. Short texts hardly shrink at all, so that the ratio
says nothing about them.
"""

from __future__ import annotations

import zlib
from typing import Any, ClassVar

import pyarrow
from pydantic import Field

from ingot.data.step import PerText, Rule, at_least, at_most, numbers
from ingot.data.text.texts import Texts

GZIP_OVER_ZLIB = 12  # bytes that gzip's header and trailer have more than zlib's


class CompressionRatioStep(PerText):
    """Bounds on the size after gzip / size before, for long documents."""

    rate = 144
    decides: ClassVar[frozenset[str]] = frozenset({"min_ratio", "max_ratio"})

    min_bytes: int = Field(default=32_768, ge=1, description="shorter documents are not measured and stay")
    level: int = Field(default=1, ge=1, le=9, description="effort of gzip; its own default is 6")
    min_ratio: float = Field(default=0.1, ge=0, description="smallest ratio; below it a document repeats itself")
    max_ratio: float = Field(default=0.6, gt=0, description="largest ratio; above it a document is close to noise")

    def writes(self) -> tuple[str, ...]:
        return ("compression_ratio",)

    def measure(self, texts: Texts) -> dict[str, Any]:
        ratios: list[float | None] = []
        for start, end in zip(texts.offsets[:-1], texts.offsets[1:], strict=True):
            size = int(end - start)
            if size < self.min_bytes:
                ratios.append(None)
            else:
                ratios.append((len(zlib.compress(texts.data[start:end].tobytes(), self.level)) + GZIP_OVER_ZLIB) / size)
        return {"compression_ratio": pyarrow.array(ratios, pyarrow.float64())}

    def decide(self, columns: pyarrow.Table) -> list[Rule]:
        ratios = numbers(columns, "compression_ratio")
        return [
            at_least("compression ratio", ratios, self.min_ratio),
            at_most("compression ratio", ratios, self.max_ratio),
        ]
