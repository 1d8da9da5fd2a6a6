"""Configuration of the `curate` stage: where raw text comes from, and the list of steps it walks through.

A step is written as `{step: NAME, threshold: …}`; a step with no other key uses the published thresholds. Steps run in
the order they are listed. The paper or code behind each default is named at the class.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from ingot.workspace.config import Config
from ingot.workspace.files import fingerprint


class PythonSource(Config):
    """The Python distribution that runs this program: a real, dirty corpus that every machine has."""

    python: Literal["installed"] = Field(
        default="installed", description="the running interpreter's standard library and site-packages"
    )
    name: str = Field(
        default="python",
        description="prefix of the `source` column: NAME-docstrings, NAME-text, NAME-metadata, NAME-code",
    )
    code_share: float = Field(
        default=0.1,
        ge=0,
        le=1,
        description="share of the Python files (picked by hash of the path) that also become whole code documents; "
        "every file gives its docstrings as prose",
    )
    max_file_bytes: int = Field(default=1_000_000, gt=0, description="a larger file is skipped, counted and named")


class FilesSource(Config):
    """Files of the user: jsonl, jsonl.gz and parquet (one document a row), txt, md and rst (one document a file)."""

    files: str | list[str] = Field(description="path or glob, or a list of them, relative to the working directory")
    name: str = Field(default="files", description="the `source` column of its documents")
    text: str = Field(default="text", description="the column of jsonl and parquet files that holds the document")
    max_file_bytes: int = Field(
        default=1_000_000, gt=0, description="a larger txt, md or rst file is skipped and counted"
    )


def _which_source(value: Any) -> str | None:
    """A source is told by the key it has."""
    for key in ("python", "files"):
        if (isinstance(value, dict) and key in value) or hasattr(value, key):
            return key
    return None


Source = Annotated[
    Annotated[PythonSource, Tag("python")] | Annotated[FilesSource, Tag("files")],
    Discriminator(
        _which_source,
        custom_error_type="unknown_source",
        custom_error_message="a source is {python: installed} or {files: PATTERN}",
    ),
]


class SplitStep(Config):
    """Fill the `kind` column: English-like prose or code. The file type decides where it can, the lines elsewhere."""

    step: Literal["split"] = Field(default="split", description="name of the step")
    max_code_lines: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="a text is code if more than this share of its non-empty lines look like code (see kinds.py)",
    )


class ExactDedupStep(Config):
    """Keep one of the documents whose text is the same up to case and white space: the longest, then the first id."""

    step: Literal["exact_dedup"] = Field(default="exact_dedup", description="name of the step")


class LanguageStep(Config):
    """Keep English prose, told by the share of function words and of Latin letters (see language.py)."""

    step: Literal["language"] = Field(default="language", description="name of the step")
    min_english: float = Field(default=0.5, ge=0, le=1, description="prose with a lower English score is removed")


class GopherQualityStep(Config):
    """The quality rules of Gopher (Rae et al. 2021, table A1) on whitespace words of prose."""

    step: Literal["gopher_quality"] = Field(default="gopher_quality", description="name of the step")
    min_words: int = Field(default=50, ge=0, description="fewest words that hold a letter or digit")
    max_words: int = Field(default=100_000, ge=1, description="most words that hold a letter or digit")
    min_mean_word_length: float = Field(default=3, ge=0, description="lowest mean length of those words")
    max_mean_word_length: float = Field(default=10, gt=0, description="highest mean length of those words")
    max_hashes_per_word: float = Field(default=0.1, ge=0, description="most `#` signs per word")
    max_ellipses_per_word: float = Field(default=0.1, ge=0, description="most `...` or `…` per word")
    max_bullet_lines: float = Field(
        default=0.9, ge=0, le=1, description="largest share of lines that start with `•` or `-`"
    )
    max_ellipsis_lines: float = Field(
        default=0.3, ge=0, le=1, description="largest share of lines that end in an ellipsis"
    )
    min_letter_words: float = Field(default=0.8, ge=0, le=1, description="smallest share of words with a letter")
    min_stop_words: int = Field(
        default=2, ge=0, le=8, description="fewest distinct words of: the, be, to, of, and, that, have, with"
    )


class GopherRepetitionStep(Config):
    """The repetition rules of Gopher on prose: a document is removed if a share of its characters is larger than this.

    Counted as datatrove does: the denominator is the length of the text, the first occurrence is no duplicate.
    """

    step: Literal["gopher_repetition"] = Field(default="gopher_repetition", description="name of the step")
    max_duplicate_paragraphs: float = Field(default=0.30, ge=0, le=1, description="share of paragraphs seen before")
    max_duplicate_paragraph_characters: float = Field(
        default=0.20, ge=0, le=1, description="characters in such paragraphs"
    )
    max_duplicate_lines: float = Field(default=0.30, ge=0, le=1, description="share of lines seen before")
    max_duplicate_line_characters: float = Field(default=0.20, ge=0, le=1, description="characters in such lines")
    max_top_ngram_characters: dict[int, float] = Field(
        default={2: 0.20, 3: 0.18, 4: 0.16}, description="by n: characters in the most frequent n-gram of words"
    )
    max_duplicate_ngram_characters: dict[int, float] = Field(
        default={5: 0.15, 6: 0.14, 7: 0.13, 8: 0.12, 9: 0.11, 10: 0.10},
        description="by n: characters in n-grams of words seen before, counted without overlap",
    )

    @field_validator("max_top_ngram_characters", "max_duplicate_ngram_characters")
    @classmethod
    def _sizes_and_shares(cls, thresholds: dict[int, float]) -> dict[int, float]:
        if any(size < 1 or not 0 <= share <= 1 for size, share in thresholds.items()):
            raise ValueError("expected {words in the n-gram (>= 1): share of the characters (0 to 1)}")
        return thresholds


class CodeRulesStep(Config):
    """Remove generated, minified and data-only code (rules of StarCoder, Li et al. 2023, and of The Stack v2)."""

    step: Literal["code_rules"] = Field(default="code_rules", description="name of the step")
    min_words: int = Field(default=20, ge=0, description="fewest whitespace words: below are empty package files")
    max_line_length: int = Field(
        default=1000, gt=0, description="longest line in characters: above is minified or data"
    )
    max_mean_line_length: float = Field(default=100, gt=0, description="longest mean line in characters")
    min_alphanumeric: float = Field(default=0.25, ge=0, le=1, description="smallest share of letters and digits")
    max_data_lines: float = Field(
        default=0.5, ge=0, le=1, description="largest share of non-empty lines that are only literals, as in tables"
    )
    generated_marker_lines: int = Field(
        default=10,
        ge=0,
        description="first lines in which a mark such as `generated by` or `do not edit` removes the file",
    )


class NearDedupStep(Config):
    """Remove near duplicates: MinHash with banded locality-sensitive hashing, then verified (FineWeb: 14 x 8).

    Two documents whose sets of word shingles have the Jaccard similarity s meet in at least one band with probability
    1 - (1 - s^rows)^bands. With 14 x 8 that is 0.09 % at s = 0.3, 5.3 % at 0.5, 56 % at 0.7, 92 % at 0.8, 99.96 % at
    0.9. Pairs that meet are kept apart unless their true Jaccard similarity reaches `min_jaccard`. Verified pairs are
    joined to clusters (transitively: two members of a cluster may be less similar than any pair that built it); the
    longest text of a cluster stays, the smallest id among equals.
    """

    step: Literal["near_dedup"] = Field(default="near_dedup", description="name of the step")
    bands: int = Field(default=14, ge=1, le=256, description="number of bands; more find more pairs")
    rows: int = Field(
        default=8, ge=1, le=64, description="hashes in a band; more make a meeting of unlike documents rarer"
    )
    shingle_words: int = Field(
        default=5, ge=1, le=50, description="words in a shingle (lower case, punctuation dropped)"
    )
    min_jaccard: float = Field(
        default=0.7, ge=0, le=1, description="true similarity of the shingle sets that makes a pair"
    )

    def probability(self, similarity: float) -> float:
        """The chance that a pair of this Jaccard similarity is looked at: the S-curve of the banding."""
        return float(1 - (1 - similarity**self.rows) ** self.bands)


class DecontaminateStep(Config):
    """Remove documents that share an n-gram of words with a text of the evals.

    Lower-case words without punctuation. An eval text shorter than n words is searched as a whole if it has at least
    `min_words`; shorter ones, and n-grams of numbers, cannot be told from ordinary text and are counted aloud. n is 13
    in GPT-3 (Brown et al. 2020); 8 is stricter.
    """

    step: Literal["decontaminate"] = Field(default="decontaminate", description="name of the step")
    against: list[str] = Field(
        default=[], description="paths or globs of eval files: jsonl(.gz), parquet (every string in a row), txt, md"
    )
    texts: list[str] = Field(
        default=[],
        description="eval prompts written here; `{name}` is a hole that cuts a template into its fixed parts",
    )
    ngram_words: int = Field(default=8, ge=1, le=50, description="words in an n-gram: 8, or 13 as in GPT-3")
    min_words: int = Field(default=5, ge=1, description="fewest words of an eval text that is searched")
    min_plain_words: int = Field(
        default=3,
        ge=0,
        description="fewest words of two or more letters in an n-gram: rows of numbers and symbols are everywhere",
    )
    max_common: int | None = Field(
        default=None,
        ge=1,
        description="an n-gram found in more documents than this is boilerplate, not a leak (null: no such rule)",
    )

    @model_validator(mode="after")
    def _has_something(self) -> DecontaminateStep:
        if not self.against and not self.texts:
            raise ValueError("nothing to compare with: give eval files in `against` or prompts in `texts`")
        return self


class QualityStep(Config):
    """Fill the `quality` column with a score in [0, 1] (formula in quality.py): later stages put better data late."""

    step: Literal["quality"] = Field(default="quality", description="name of the step")
    minimum: float = Field(default=0.0, ge=0, le=1, description="documents with a lower score are removed")


Step = Annotated[
    SplitStep
    | ExactDedupStep
    | LanguageStep
    | GopherQualityStep
    | GopherRepetitionStep
    | CodeRulesStep
    | NearDedupStep
    | DecontaminateStep
    | QualityStep,
    Field(discriminator="step"),
]

NEEDS_KIND = (LanguageStep, GopherQualityStep, GopherRepetitionStep, CodeRulesStep, QualityStep)


def default_steps() -> list[Step]:
    """The published thresholds in the usual order: cheap steps first. Decontamination needs the evals: add it."""
    return [
        SplitStep(),
        ExactDedupStep(),
        GopherQualityStep(),
        LanguageStep(),
        GopherRepetitionStep(),
        CodeRulesStep(),
        NearDedupStep(),
        QualityStep(),
    ]


class CurateConfig(Config):
    """Raw text to clean documents."""

    sources: list[Source] = Field(default=[PythonSource()], min_length=1, description="where the raw text comes from")
    max_bytes: int = Field(
        default=40_000_000,
        gt=0,
        description="budget of raw bytes; each source in turn gets an equal share of what is left. Files are taken in "
        "the order of the hash of their relative path, prose files before Python files",
    )
    steps: list[Step] = Field(default_factory=default_steps, description="what the documents walk through, in order")
    samples: int = Field(default=40, ge=0, description="removed documents kept for looking at, per step")

    @model_validator(mode="after")
    def _source_names(self) -> CurateConfig:
        names = [source.name for source in self.sources]
        for name in names:
            if not re.fullmatch(r"[a-z0-9][a-z0-9._-]*", name) or name == "validation":
                raise ValueError(
                    f"source name {name!r} cannot name a folder of token shards: use lower-case letters, digits, "
                    "`.`, `_` and `-`, and not `validation`"
                )
        if len(set(names)) < len(names):
            raise ValueError(f"two sources have the same name: give each its own `name` ({', '.join(names)})")
        return self

    @model_validator(mode="after")
    def _columns_exist(self) -> CurateConfig:
        has_kind = False
        for step in self.steps:
            has_kind = has_kind or isinstance(step, SplitStep)
            if isinstance(step, NEEDS_KIND) and not has_kind:
                raise ValueError(f"step `{step.step}` needs the kind column: put {{step: split}} before it")
        if not any(isinstance(step, QualityStep) for step in self.steps):
            raise ValueError("the documents need a quality column: add {step: quality}")
        return self

    def outside(self) -> dict[str, str]:
        """The files of the sources and of the evals, and the versions of the installed packages if those are read."""
        from ingot.data.sources import installed_versions, matching_files

        patterns = [
            step_pattern for step in self.steps if isinstance(step, DecontaminateStep) for step_pattern in step.against
        ]
        found: dict[str, str] = {}
        for source in self.sources:
            if isinstance(source, PythonSource):
                found |= installed_versions()
            else:
                patterns += [source.files] if isinstance(source.files, str) else source.files
        for pattern in patterns:
            found |= {str(path): fingerprint(path) for path in matching_files(pattern, place=f"curate: {pattern}")}
        return found
