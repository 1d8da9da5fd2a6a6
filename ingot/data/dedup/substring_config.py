"""Options of `substring_dedup`: cut out long passages that stand more than once in the corpus."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from ingot.data.step import StepConfig

if TYPE_CHECKING:
    from ingot.data.step import Step


class SubstringDedupStep(StepConfig):
    """Cut out every passage of at least `min_bytes` that stands more than once, in one document or in several.

    Lee et al. 2022 (arXiv 2107.06499) strike every copy of 100 bytes and more (50 tokens of 2 bytes); Olmo 3 strikes
    500 bytes and more and whatever lies between two struck passages that nearly touch (`coverage`). Copies are found
    byte for byte: the result is that of a suffix array over the whole corpus. Cutting brings strangers together and may
    make new repeats; name the step twice to cut those too.
    """

    decides: ClassVar[frozenset[str]] = frozenset({"min_words"})

    step: Literal["substring_dedup"] = Field(default="substring_dedup", description="name of the step")
    min_bytes: int = Field(
        default=500, ge=8, le=100_000, description="length of a repeat in UTF-8 bytes; Olmo 3: 500, Lee et al.: 100"
    )
    keep_first: bool = Field(
        default=True,
        description="leave the first copy in the order of the documents; false: strike every copy, as the code of Lee "
        "et al. does",
    )
    coverage: float = Field(
        default=0.95,
        gt=0,
        le=1,
        description="a stretch that begins and ends with struck passages is struck whole if they cover this share of it; "
        "1: only the passages themselves. Olmo 3's configuration has 0.95, its paper says 0.8",
    )
    min_words: int = Field(
        default=50,
        ge=1,
        description="a document from which something was cut goes if fewer white-space words are left (datatrove: 50)",
    )

    def writes(self) -> tuple[str, ...]:
        return ("text", "substring_bytes", "substring_words", "_substring_spans")

    def build(self) -> Step[Any]:
        from ingot.data.dedup.substring import SubstringDedup

        return SubstringDedup(self)
