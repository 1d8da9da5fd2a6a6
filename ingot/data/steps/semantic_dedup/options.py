"""Options of the step `semantic_dedup`."""

from __future__ import annotations

from abc import ABC
from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from ingot.data.keep import KeepConfig
from ingot.workspace.files import fingerprint


class SemanticDedupOptions(KeepConfig, ABC):
    """Where embeddings come from, and how alike copies are."""

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
    def _one_origin(self) -> Self:
        if (self.model is None) == (self.embedding_column is None):
            raise ValueError(
                "where the embeddings come from: give `model` (a folder) or `embedding_column`, one of them"
            )
        return self

    @model_validator(mode="after")
    def _model_reads(self) -> Self:
        if self.model is None:
            self.refuse("max_tokens", because="the embeddings are those of a column, no model reads texts")
        return self

    def reads(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*super().reads(), *([self.embedding_column] if self.embedding_column else []))))

    def writes(self) -> tuple[str, ...]:
        return ("semantic_similarity", "_semantic_location")

    def outside(self) -> dict[str, str]:
        return {str(path): fingerprint(path) for path in sorted(self.model.glob("*.*"))} if self.model else {}
