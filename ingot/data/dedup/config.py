"""The options of every step that removes copies: which copy stays."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from ingot.data.step import AcrossDocuments

Keep = Literal["first", "longest", "newest", "best"]

KEEP_DESCRIPTION = (
    "which copy stays: `first` in the order of the documents, `longest` text, `newest` date, `best` quality. Among "
    "equals the hash of the id decides, which prefers no source and does not depend on the order"
)


class KeepConfig(AcrossDocuments):
    """A step that removes copies: the options that say which copy stays."""

    keep: Keep = Field(default="longest", description=KEEP_DESCRIPTION)
    keep_column: str | None = Field(
        default=None,
        description="column with the date (ISO 8601, a timestamp or a number) or the quality that `keep` compares; null: "
        "`date` for `newest`, `quality` for `best`. A missing value loses",
    )

    @model_validator(mode="after")
    def _compares_a_column(self) -> Self:
        if self.keep not in ("newest", "best"):
            self.refuse(
                "keep_column", because=f"keep: {self.keep} compares no column; leave it out, or keep newest or best"
            )
        return self

    def preference_column(self) -> str | None:
        """The column that `keep` compares, if it compares one."""
        return {"newest": self.keep_column or "date", "best": self.keep_column or "quality"}.get(self.keep)

    def reads(self) -> tuple[str, ...]:
        column = self.preference_column()
        return tuple(dict.fromkeys((*super().reads(), "id", *([column] if column else []))))
