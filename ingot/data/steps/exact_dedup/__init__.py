"""The step `exact_dedup` removes exact copies: whole documents, or paragraphs or lines that were seen before.

Documents: dedup/exact.py. Paragraphs and lines: dedup/lines.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field, model_validator

from ingot.data.keep import KEEP_DESCRIPTION, Keep, KeepConfig

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pyarrow

    from ingot.data.engine.shard import Shard
    from ingot.data.engine.work import Work
    from ingot.data.step import Rule


class ExactDedupStep(KeepConfig):
    """Remove what is the same: whole documents, or paragraphs or lines wherever they were seen before.

    `document` removes documents. `paragraph` and `line` rewrite the text instead: a paragraph or line that stood in an
    earlier document, or earlier in the same one, is cut out; a document that loses more than `max_removed` of its text
    is removed whole. Texts are compared by 128-bit hashes.
    """

    rate = 156
    decides: ClassVar[frozenset[str]] = frozenset({"max_removed"})

    scope: Literal["document", "paragraph", "line"] = Field(
        default="document", description="what is compared; paragraphs are separated by empty lines"
    )
    compare: Literal["exact", "loose"] = Field(
        default="loose", description="`exact`: byte for byte; `loose`: up to case and white space"
    )
    keep: Keep = Field(default="first", description=KEEP_DESCRIPTION)
    min_bytes: int = Field(
        default=30,
        ge=1,
        description="shorter paragraphs or lines are left alone (UTF-8 bytes, outer white space not counted)",
    )
    max_removed: float = Field(
        default=1.0,
        ge=0,
        le=1,
        description="largest share of a document's bytes that may be cut out; above it the document goes. With 1.0 only "
        "a document of which nothing is left goes",
    )

    @model_validator(mode="after")
    def _first_stays(self) -> ExactDedupStep:
        if self.scope != "document" and self.keep != "first":
            raise ValueError(
                f"scope `{self.scope}` keeps the first copy in the order of the documents: use keep: first"
            )
        return self

    @model_validator(mode="after")
    def _cuts(self) -> ExactDedupStep:
        if self.scope == "document":
            because = "scope: document cuts nothing out of a text"
            self.refuse("min_bytes", "max_removed", because=because, instead="set scope: paragraph or line")
        return self

    def writes(self) -> tuple[str, ...]:
        if self.scope == "document":
            return ("copy_cluster", "copy_count", "_copy_location")
        return ("text", "repeated_count", "repeated_share", "_repeated_spans")

    def annotate(self, shards: Sequence[Shard], work: Work) -> list[Path]:
        from ingot.data.dedup import exact
        from ingot.data.steps.exact_dedup import lines

        return (exact if self.scope == "document" else lines).annotate(self, shards, work)

    def decide(self, columns: pyarrow.Table) -> list[Rule]:
        from ingot.data.dedup import exact
        from ingot.data.steps.exact_dedup import lines

        return exact.decide(columns) if self.scope == "document" else lines.decide(self, columns)
