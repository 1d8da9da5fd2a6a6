"""Options of the step `exact_dedup`."""

from __future__ import annotations

from abc import ABC
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from ingot.data.keep import KEEP_DESCRIPTION, Keep, KeepConfig


class ExactDedupOptions(KeepConfig, ABC):
    """What is compared, how, and which copy stays."""

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
    def _first_stays(self) -> Self:
        if self.scope != "document" and self.keep != "first":
            raise ValueError(
                f"scope `{self.scope}` keeps the first copy in the order of the documents: use keep: first"
            )
        return self

    @model_validator(mode="after")
    def _cuts(self) -> Self:
        if self.scope == "document":
            because = "scope: document cuts nothing out of a text"
            self.refuse("min_bytes", "max_removed", because=because, instead="set scope: paragraph or line")
        return self

    def writes(self) -> tuple[str, ...]:
        if self.scope == "document":
            return ("copy_cluster", "copy_count", "_copy_location")
        return ("text", "repeated_count", "repeated_share", "_repeated_spans")
