"""Options of `upsample`: how often each document is shown, by topic and quality."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, PositiveFloat, model_validator

from ingot.data.step import StepConfig

if TYPE_CHECKING:
    from ingot.data.step import Step


class UpsampleStep(StepConfig):
    """Decide how often each document is shown: never below the discard point, more often the better it is.

    In each topic a truncated power-exponential curve over the documents from worst to best is solved for the topic's
    token target (Olmo 3, arXiv 2512.13961, A.2.4; see curve.py). A document gets the whole part of its rate as copies
    and one more with the probability of the rest, decided by a hash of its id. Documents with 0 copies are removed;
    whoever writes token shards writes a document `copies` times.
    """

    step: Literal["upsample"] = Field(default="upsample", description="name of the step")
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
    def _one_rank(self) -> UpsampleStep:
        if (self.bucket is None) == (self.quality is None):
            raise ValueError(
                "give `bucket` (a column of ranks) or `quality` (a column of scores) and set the other to null"
            )
        return self

    def reads(self) -> tuple[str, ...]:
        named = (self.topic, self.bucket, self.quality, self.tokens)
        return (*super().reads(), "id", *(name for name in named if name))

    def writes(self) -> tuple[str, ...]:
        return (self.copies, "upsample_rate")

    def build(self) -> Step[Any]:
        from ingot.data.upsample.upsample import Upsample

        return Upsample(self)
