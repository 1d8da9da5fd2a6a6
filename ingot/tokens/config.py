"""Options of the two stages that turn documents into tokens. Nothing heavy is imported here."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator

from ingot.workspace.config import Config

VALIDATION = "validation"
HELD_OUT_SHARE = 0.02


class Balance(Config):
    """Which share of the bytes that a tokenizer is trained on comes from which documents."""

    column: str = Field(description="The column that divides the documents: language, source, topic …")
    shares: dict[str, Annotated[float, Field(gt=0)]] = Field(
        {},
        description="Weight of each value, as in {en: 2, de: 1}; values that are not named are left out. Empty: the same "
        "for every value. A value with less text than its share gives all it has.",
    )


class TokenizerConfig(Config):
    """Train a byte-level BPE tokenizer on curated documents."""

    vocabulary_size: int = Field(
        4096,
        ge=272,
        le=1_000_000,
        description="How many token ids to make at most: 16 special tokens, 256 bytes, and merges for the rest. "
        "A small text may run out of pairs before that; the model always takes the size that came out.",
    )
    split: Literal["words_with_marks", "cl100k", "o200k"] = Field(
        "words_with_marks",
        description="Where text is cut before merging. `words_with_marks`: as cl100k, but combining marks belong to words, "
        "which Indic scripts, Arabic and Hebrew need. `cl100k`: as GPT-4 and Llama 3. `o200k`: words are also cut where upper "
        "case follows lower case, and keep 's and 't.",
    )
    digits: Literal["single", "groups_of_three", "groups_from_the_right"] = Field(
        "single",
        description="How numbers are cut before merging. `single`: every digit is a token, which makes arithmetic "
        "learnable for small models. `groups_of_three`: up to three digits from the left (1234567: 123 456 7), as cl100k, "
        "o200k and Llama 3. `groups_from_the_right`: thousands stay together (1 234 567).",
    )
    minimum_frequency: int = Field(
        2, ge=1, description="A pair of tokens is merged only if it occurs at least this often in the training text."
    )
    longest_token: int = Field(
        24,
        ge=1,
        description="No token is longer than this many bytes. Keeps rulers such as `=====…` from using up ids.",
    )
    training_bytes: int = Field(
        32_000_000,
        ge=1,
        description="Train on at most about this many bytes of text; documents are taken by a hash of their id, so "
        "that the sample is the same on every machine. Merges hardly change beyond tens of megabytes.",
    )
    balance: Balance | None = Field(
        None, description="How the training text is divided over languages or domains; null takes it as it comes."
    )
    held_out_share: float = Field(
        HELD_OUT_SHARE,
        gt=0,
        lt=1,
        description="Share of documents held out of training, on which the statistics are measured. With the same "
        "value as `validation_share` of tokenize these are exactly the validation documents.",
    )
    measure_by: list[str] | None = Field(
        None,
        description="Columns whose values get statistics of their own on the held-out documents (language, source …); "
        "null: `kind`, if the documents have it.",
    )


class Where(Config):
    """Which documents belong to a source of pre-training data. All conditions must hold."""

    kind: Literal["prose", "code"] | None = Field(None, description="Only documents of this kind; null takes both.")
    quality_at_least: float = Field(
        0.0, ge=0, le=1, description="Only documents whose quality score is this high or higher; 0 takes all."
    )
    where: dict[str, str | list[str]] = Field(
        {},
        description="Only documents whose column has this value or one of these, as in {topic: [science, history]}; "
        "any column that curation wrote.",
    )

    def values(self) -> dict[str, list[str]]:
        """The values that each column may have."""
        kind: dict[str, list[str]] = {} if self.kind is None else {"kind": [self.kind]}
        return kind | {name: [one] if isinstance(one, str) else one for name, one in self.where.items()}

    def columns(self) -> list[str]:
        """The columns that the conditions need."""
        return [*self.values(), *(["quality"] if self.quality_at_least > 0 else [])]


class TokenizeConfig(Config):
    """Turn documents into token shards, one folder a source, and hold some documents out for validation."""

    how: ClassVar[frozenset[str]] = frozenset({"workers"})

    sources: dict[str, Where] = Field(
        {"all": Where()},
        min_length=1,
        description="Name of each source and which documents it takes. A document may belong to several sources "
        "(say `prose` and `best`); the mixture weights of pretraining refer to these names.",
    )
    validation_share: float = Field(
        HELD_OUT_SHARE,
        gt=0,
        lt=1,
        description="Share of documents held out for validation, chosen by a hash of the document's id: the same "
        "documents for every seed. They are in no training source.",
    )
    validation_kind: Literal["prose", "code"] | None = Field(
        None,
        description="Measure validation on held-out documents of this kind only; null takes both. The held-out "
        "documents of the other kind are still not trained on.",
    )
    workers: int | None = Field(None, ge=1, description="Processes that encode; null: one for each processor.")

    @field_validator("sources")
    @classmethod
    def _check_names(cls, sources: dict[str, Where]) -> dict[str, Where]:
        for name in sources:
            if name == VALIDATION:
                raise ValueError(f"`{VALIDATION}` is made from held-out documents: give the source another name")
            if not name.replace("_", "").replace("-", "").isalnum() or not name.isascii():
                raise ValueError(f"source name {name!r}: use letters, digits, - and _ (it names a folder)")
        return sources
