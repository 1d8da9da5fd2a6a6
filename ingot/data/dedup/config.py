"""Options of the steps that remove copies: exact ones, near ones (MinHash) and those that say the same (embeddings)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from ingot.data.step import Step, StepConfig
from ingot.workspace.files import fingerprint

Keep = Literal["first", "longest", "newest", "best"]

KEEP_DESCRIPTION = (
    "which copy stays: `first` in the order of the documents, `longest` text, `newest` date, `best` quality. Among "
    "equals the hash of the id decides, which prefers no source and does not depend on the order"
)


class KeepConfig(StepConfig):
    """What all steps that remove copies share: which copy stays."""

    keep: Keep = Field(default="longest", description=KEEP_DESCRIPTION)
    keep_column: str | None = Field(
        default=None,
        description="column with the date (ISO 8601, a timestamp or a number) or the quality that `keep` compares; null: "
        "`date` for `newest`, `quality` for `best`. A missing value loses",
    )

    def preference_column(self) -> str | None:
        """The column that `keep` compares, if it compares one."""
        return {"newest": self.keep_column or "date", "best": self.keep_column or "quality"}.get(self.keep)

    def reads(self) -> tuple[str, ...]:
        column = self.preference_column()
        return tuple(dict.fromkeys((*super().reads(), "id", *([column] if column else []))))


class ExactDedupStep(KeepConfig):
    """Remove what is the same: whole documents, or paragraphs or lines wherever they were seen before.

    `document` removes documents. `paragraph` and `line` rewrite the text instead: a paragraph or line that stood in an
    earlier document, or earlier in the same one, is cut out; a document that loses more than `max_removed` of its text
    is removed whole. Texts are compared by 128-bit hashes.
    """

    decides: ClassVar[frozenset[str]] = frozenset({"max_removed"})

    step: Literal["exact_dedup"] = Field(default="exact_dedup", description="name of the step")
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

    def writes(self) -> tuple[str, ...]:
        if self.scope == "document":
            return ("copy_cluster", "copy_count", "_copy_place")
        return ("text", "repeated_count", "repeated_share", "_repeated_spans")

    def build(self) -> Step[Any]:
        from ingot.data.dedup.exact import ExactDocuments
        from ingot.data.dedup.lines import ExactPieces

        return ExactDocuments(self) if self.scope == "document" else ExactPieces(self)


class NearDedupStep(KeepConfig):
    """Remove near duplicates: MinHash with banded locality-sensitive hashing, then verified (FineWeb: 14 x 8).

    Two documents whose sets of shingles have the Jaccard similarity s meet in at least one band with probability
    1 - (1 - s^rows)^bands. With 14 x 8 that is 0.09 % at s = 0.3, 5.3 % at 0.5, 56 % at 0.7, 92 % at 0.8, 99.96 % at
    0.9; Olmo 3 has 26 x 11 for the web. Documents that meet are compared by their true Jaccard similarity, and those
    that reach `min_jaccard` are joined to clusters. Joining is transitive: two members of a cluster may be less alike
    than any pair that built it.
    """

    step: Literal["near_dedup"] = Field(default="near_dedup", description="name of the step")
    bands: int = Field(default=14, ge=1, le=256, description="number of bands; more find more pairs")
    rows: int = Field(
        default=8, ge=1, le=64, description="hashes in a band; more make a meeting of unlike documents rarer"
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
        description="true similarity of the shingle sets that makes a pair; null: not verified, whoever meets is joined",
    )
    text_cap: int | None = Field(
        default=None,
        ge=1,
        description="bytes of a document that are looked at, from its beginning; null: all. Very long documents have "
        "so many shingles that they resemble one another",
    )

    @model_validator(mode="after")
    def _tokenizer_is_named(self) -> NearDedupStep:
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
        return ("duplicate_cluster", "duplicate_count", "duplicate_similarity", "_duplicate_place")

    def outside(self) -> dict[str, str]:
        return {str(self.tokenizer): fingerprint(self.tokenizer)} if self.tokenizer else {}

    def build(self) -> Step[Any]:
        from ingot.data.dedup.near import NearDuplicates

        return NearDuplicates(self)


class SemanticDedupStep(KeepConfig):
    """Remove documents that say the same in other words: SemDeDup (Abbas et al. 2023, arXiv 2303.09540).

    Embeddings are clustered by k-means; inside a cluster a document goes if the cosine of its embedding with a document
    that stays is at least `min_cosine`. Embeddings come from a model folder or from a column of your own.
    """

    step: Literal["semantic_dedup"] = Field(default="semantic_dedup", description="name of the step")
    model: Path | None = Field(
        default=None,
        description="folder of a sentence-embedding model as transformers lays it out (config.json, model.safetensors, "
        "tokenizer.json), such as all-MiniLM-L6-v2; tokens are averaged",
    )
    embedding_column: str | None = Field(
        default=None, description="column with a list of numbers for each document, instead of `model`"
    )
    max_tokens: int = Field(default=256, ge=1, description="tokens of a document that the model sees")
    min_cosine: float = Field(
        default=0.95,
        gt=0,
        le=1,
        description="cosine similarity that makes a copy; 0.95 removes little (SemDeDup: eps 0.05)",
    )
    clusters: int | None = Field(
        default=None,
        ge=1,
        description="number of k-means clusters; null: the square root of the number of documents. Only documents of the "
        "same cluster are compared",
    )
    seed: int = Field(default=0, description="seed of the first centroids")

    @model_validator(mode="after")
    def _one_origin(self) -> SemanticDedupStep:
        if (self.model is None) == (self.embedding_column is None):
            raise ValueError(
                "where the embeddings come from: give `model` (a folder) or `embedding_column`, one of them"
            )
        return self

    def reads(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*super().reads(), *([self.embedding_column] if self.embedding_column else []))))

    def writes(self) -> tuple[str, ...]:
        return ("semantic_similarity", "_semantic_place")

    def outside(self) -> dict[str, str]:
        return {str(path): fingerprint(path) for path in sorted(self.model.glob("*.*"))} if self.model else {}

    def build(self) -> Step[Any]:
        from ingot.data.dedup.semantic import SemanticDuplicates

        return SemanticDuplicates(self)
