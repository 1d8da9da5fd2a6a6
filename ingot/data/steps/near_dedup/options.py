"""Options of the step `near_dedup`."""

from __future__ import annotations

from abc import ABC
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from ingot.data.keep import KeepConfig
from ingot.workspace.files import fingerprint


class NearDedupOptions(KeepConfig, ABC):
    """How documents are compared, and how alike copies are."""

    bands: int = Field(default=14, ge=1, le=256, description="number of bands; more find more pairs")
    rows: int = Field(
        default=8, ge=1, le=64, description="hashes in a band; more make a chance match of unlike documents rarer"
    )
    shingles: Literal["words", "tokens", "characters"] = Field(
        default="words",
        description="what the sets are made of. `words`: lower case, without punctuation and diacritics, numbers as 0 "
        "(a character of a script without spaces is a word); `characters`: of the same normalised text; `tokens` of "
        "`tokenizer`",
    )
    shingle_size: int | None = Field(
        default=None,
        ge=1,
        le=100,
        description="how many in a row make a shingle; null: 5 words (FineWeb), 5 tokens (Olmo 3), 24 characters (NeMo "
        "Curator). A shorter document is one shingle",
    )
    tokenizer: Path | None = Field(default=None, description="tokenizer.json for `shingles: tokens`")
    min_jaccard: float | None = Field(
        default=0.7,
        ge=0,
        le=1,
        description="true similarity of the shingle sets that makes a pair; null: not verified, documents that meet are joined",
    )
    text_cap: int | None = Field(
        default=None,
        ge=1,
        description="bytes of a document that are looked at, from its beginning; null: all. Very long documents have "
        "so many shingles that they resemble one another",
    )

    @model_validator(mode="after")
    def _tokenizer_is_named(self) -> Self:
        if (self.shingles == "tokens") != (self.tokenizer is not None):
            raise ValueError("`shingles: tokens` and `tokenizer` go together: give both or neither")
        return self

    @property
    def size(self) -> int:
        """Elements in a shingle."""
        return self.shingle_size or (24 if self.shingles == "characters" else 5)

    def probability(self, similarity: float) -> float:
        """The chance that a pair of this Jaccard similarity meets: the S-curve of the banding."""
        return float(1 - (1 - similarity**self.rows) ** self.bands)

    def knee(self) -> float:
        """(1/bands)^(1/rows), where the S-curve is steepest (about); the usual name for `the threshold`."""
        return float((1 / self.bands) ** (1 / self.rows))

    def writes(self) -> tuple[str, ...]:
        return ("duplicate_cluster", "duplicate_count", "duplicate_similarity", "_duplicate_location")

    def outside(self) -> dict[str, str]:
        return {str(self.tokenizer): fingerprint(self.tokenizer)} if self.tokenizer else {}

    def say(self) -> list[str]:
        verified = "not verified" if self.min_jaccard is None else f"verified at Jaccard {self.min_jaccard:g}"
        curve = ", ".join(f"{s:.1f}: {100 * self.probability(s):.2f} %" for s in (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9))
        return [
            f"{self.bands} bands x {self.rows} rows, shingles of {self.size} {self.shingles}, knee at Jaccard "
            f"{self.knee():.2f}, {verified}",
            f"share of pairs that meet, by similarity: {curve}",
        ]
