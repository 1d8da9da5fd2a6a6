"""Options of the rules of Gopher, with the thresholds of the paper (Rae et al. 2021) as defaults."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import Field, model_validator

from ingot.data.rules.word_option import WORDS, Words
from ingot.data.step import StepConfig

if TYPE_CHECKING:
    from ingot.data.rules.gopher_quality import GopherQuality
    from ingot.data.rules.gopher_repetition import GopherRepetition


class GopherQualityStep(StepConfig):
    """The quality rules of Gopher (Rae et al. 2021, table A1), counted as datatrove does."""

    decides: ClassVar[frozenset[str]] = frozenset(
        {
            "min_words",
            "max_words",
            "min_mean_word_length",
            "max_mean_word_length",
            "max_hashes_per_word",
            "max_ellipses_per_word",
            "max_bullet_lines",
            "max_ellipsis_lines",
            "min_letter_words",
            "min_stop_words",
        }
    )

    step: Literal["gopher_quality"] = Field(default="gopher_quality", description="name of the step")
    words: Words = Field(default="whitespace", description=WORDS)
    min_words: int = Field(default=50, ge=0, description="fewest words that are not made of symbols alone")
    max_words: int = Field(default=100_000, ge=1, description="most words that are not made of symbols alone")
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
    min_stop_words: int = Field(default=2, ge=0, description="fewest stop words")
    stop_words: list[str] = Field(
        default=["the", "be", "to", "of", "and", "that", "have", "with"],
        description="the stop words, in the case in which they must stand",
    )
    count_stop_words: Literal["distinct", "all"] = Field(
        default="distinct",
        description="how many different ones occur (datatrove), or how often they occur together (DCLM, OLMo 3)",
    )

    def writes(self) -> tuple[str, ...]:
        """See StepConfig."""
        return (
            "_gopher_words",
            "_gopher_mean_word_length",
            "_gopher_hashes_per_word",
            "_gopher_ellipses_per_word",
            "_gopher_bullet_lines",
            "_gopher_ellipsis_lines",
            "_gopher_letter_words",
            "_gopher_stop_words",
        )

    def build(self) -> GopherQuality:
        """See StepConfig."""
        from ingot.data.rules.gopher_quality import GopherQuality

        return GopherQuality(self)


class GopherRepetitionStep(StepConfig):
    """The repetition rules of Gopher (Rae et al. 2021, table A1): a text goes if a share of it is larger than this."""

    decides: ClassVar[frozenset[str]] = frozenset(
        {
            "max_duplicate_paragraphs",
            "max_duplicate_paragraph_characters",
            "max_duplicate_lines",
            "max_duplicate_line_characters",
            "max_top_ngram_characters",
            "max_duplicate_ngram_characters",
        }
    )

    step: Literal["gopher_repetition"] = Field(default="gopher_repetition", description="name of the step")
    words: Words = Field(default="whitespace", description=WORDS)
    counting: Literal["datatrove", "datamap"] = Field(
        default="datatrove",
        description="`datatrove`: occurrences after the first count, shares are of the whole text; `datamap` (OLMo 3): "
        "every occurrence of what repeats counts, each word once, shares are of all words, lines or paragraphs",
    )
    top_ngrams: list[int] = Field(
        default=[2, 3, 4], description="words in the n-grams of which the most frequent one is measured"
    )
    duplicate_ngrams: list[int] = Field(
        default=[5, 6, 7, 8, 9, 10], description="words in the n-grams of which those seen before are measured"
    )
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

    @model_validator(mode="after")
    def _measured_sizes(self) -> Self:
        for name in ("top", "duplicate"):
            sizes, limits = getattr(self, f"{name}_ngrams"), getattr(self, f"max_{name}_ngram_characters")
            if not all(1 <= size <= 100 for size in sizes):
                raise ValueError(f"{name}_ngrams: expected numbers of words from 1 to 100")
            if any(size not in sizes or not 0 <= share <= 1 for size, share in limits.items()):
                raise ValueError(f"max_{name}_ngram_characters: expected {{one of {sizes}: share from 0 to 1}}")
        return self

    def writes(self) -> tuple[str, ...]:
        """See StepConfig."""
        return (
            "_gopher_characters",
            "_gopher_duplicate_paragraphs",
            "_gopher_duplicate_paragraph_characters",
            "_gopher_duplicate_lines",
            "_gopher_duplicate_line_characters",
            *(f"_gopher_top_{size}_gram" for size in self.top_ngrams),
            *(f"_gopher_duplicate_{size}_grams" for size in self.duplicate_ngrams),
        )

    def build(self) -> GopherRepetition:
        """See StepConfig."""
        from ingot.data.rules.gopher_repetition import GopherRepetition

        return GopherRepetition(self)
