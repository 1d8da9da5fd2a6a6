"""Options of the step `upsample`."""

from __future__ import annotations

from abc import ABC
from typing import Self

from pydantic import Field, PositiveFloat, model_validator

from ingot.data.step import AcrossDocuments


class UpsampleOptions(AcrossDocuments, ABC):
    """What is wanted of each topic, and how documents are ranked."""

    targets: dict[str, PositiveFloat] = Field(
        default={}, description="tokens wanted by topic; a topic that is not named gets `ratio` times what it has"
    )
    ratio: float = Field(
        default=1.0, gt=0, description="tokens wanted for each token available, in topics that `targets` does not name"
    )
    topic: str | None = Field(default="topic", description="column with the topic; null: all documents are one topic")
    bucket: str | None = Field(
        default="quality_bucket",
        description="column with the rank inside the topic, 0 is worst, as the step `ventiles` writes it; null: `quality` "
        "is ranked here",
    )
    quality: str | None = Field(
        default=None, description="column with a score, higher is better, that is ranked here; goes with `bucket: null`"
    )
    buckets: int = Field(default=20, ge=2, le=1000, description="number of buckets, worst to best; Olmo 3: 20")
    tokens: str | None = Field(
        default=None, description="column with the number of tokens; null: bytes of the text / `bytes_per_token`"
    )
    bytes_per_token: float = Field(default=4.0, gt=0, description="estimate for documents that are not tokenised yet")
    discard: float = Field(
        default=0.4,
        ge=0,
        lt=1,
        description="share of a topic's tokens, from the worst, that is not shown at all; moved down to the edge of a "
        "bucket. Olmo 3: 0.4",
    )
    max_rate: float = Field(
        default=7.0, gt=0, description="largest average number of copies in the best bucket; Olmo 3: 7"
    )
    copies: str = Field(default="copies", description="column to write: how often the document is shown")
    seed: int = Field(default=0, ge=0, description="other seeds give the copy of a fractional rate to other documents")

    @model_validator(mode="after")
    def _one_rank(self) -> Self:
        if (self.bucket is None) == (self.quality is None):
            raise ValueError(
                "give `bucket` (a column of ranks) or `quality` (a column of scores) and set the other to null"
            )
        return self

    @model_validator(mode="after")
    def _one_size(self) -> Self:
        if self.tokens is not None:
            self.refuse("bytes_per_token", because=f"the column {self.tokens} has the tokens")
        return self

    def reads(self) -> tuple[str, ...]:
        named = (self.topic, self.bucket, self.quality, self.tokens)
        return (*super().reads(), "id", *(name for name in named if name))

    def writes(self) -> tuple[str, ...]:
        return (self.copies, "upsample_rate")
