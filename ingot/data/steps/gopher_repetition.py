"""The step `gopher_repetition`, the repetition rules of Gopher on lines, paragraphs and n-grams (Rae et al. 2021, A.1).

`counting: datatrove` (also FineWeb's)

    paragraphs    re.split(r"\n{2,}", text.strip())         duplicates are occurrences after the first
    lines         re.split(r"\n+", text)
    n-grams       see repeats.py                            all characters are over the length of the text

`counting: datamap` (DCLM's and OLMo 3's): paragraphs and lines that are not empty; every occurrence of what repeats
counts; characters are over those of all elements. A text without lines or paragraphs repeats entirely (share 1).
datamap-rs splits paragraphs at every "\n\n": the same wherever no more than two newlines follow each other.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

import pyarrow
from numpy.typing import NDArray
from pydantic import Field, model_validator

from ingot.data.step import WORDS, PerText, Rule, Words, at_most, numbers, per
from ingot.data.text.lines import blocks_of, lines_of, paragraphs_of
from ingot.data.text.repeats import ngram_characters, seen_before
from ingot.data.text.texts import Texts
from ingot.data.text.words import words_of


class GopherRepetitionStep(PerText):
    """The repetition rules of Gopher (Rae et al. 2021, table A1): a text goes if a share of it is larger than this."""

    rate = 38
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
        return (
            "_gopher_characters",
            "_gopher_duplicate_paragraphs",
            "_gopher_duplicate_paragraph_characters",
            "_gopher_duplicate_lines",
            "_gopher_duplicate_line_characters",
            *(f"_gopher_top_{size}_gram" for size in self.top_ngrams),
            *(f"_gopher_duplicate_{size}_grams" for size in self.duplicate_ngrams),
        )

    def measure(self, texts: Texts) -> dict[str, Any]:

        union = self.counting == "datamap"
        lines = lines_of(texts)
        length = lines.sums(lines.characters) + lines.per_text() - 1
        shares: dict[str, NDArray[Any]] = {"_gopher_characters": length}
        for name, elements in (("paragraph", paragraphs_of(texts, words_of(texts))), ("line", blocks_of(lines))):
            if union:
                elements = elements.select(elements.characters > 0)
            count, characters = seen_before(elements, firsts_too=union)
            of = elements.sums(elements.characters) if union else length
            share, character_share = per(count, elements.per_text()), per(characters, of)
            if union:
                share[elements.per_text() == 0] = character_share[elements.per_text() == 0] = 1.0
            shares[f"_gopher_duplicate_{name}s"] = share
            shares[f"_gopher_duplicate_{name}_characters"] = character_share
        words = words_of(texts, self.words)
        of = words.sums(words.characters) if union else length
        sizes = [*self.top_ngrams, *self.duplicate_ngrams] or [1]
        top, duplicate = ngram_characters(words, max(sizes), union=union, shortest=min(sizes))
        shares |= {f"_gopher_top_{size}_gram": per(top[:, size], of) for size in self.top_ngrams}
        shares |= {f"_gopher_duplicate_{size}_grams": per(duplicate[:, size], of) for size in self.duplicate_ngrams}
        return shares

    def decide(self, columns: pyarrow.Table) -> list[Rule]:

        def share(rule: str, column: str, limit: float) -> Rule:
            return at_most(rule, numbers(columns, f"_gopher_{column}"), limit)

        return [
            Rule("empty text", numbers(columns, "_gopher_characters") == 0),
            share("duplicate paragraphs", "duplicate_paragraphs", self.max_duplicate_paragraphs),
            share(
                "characters in duplicate paragraphs",
                "duplicate_paragraph_characters",
                self.max_duplicate_paragraph_characters,
            ),
            share("duplicate lines", "duplicate_lines", self.max_duplicate_lines),
            share("characters in duplicate lines", "duplicate_line_characters", self.max_duplicate_line_characters),
            *(
                share(f"characters in the most frequent {size}-gram", f"top_{size}_gram", limit)
                for size, limit in sorted(self.max_top_ngram_characters.items())
            ),
            *(
                share(f"characters in duplicate {size}-grams", f"duplicate_{size}_grams", limit)
                for size, limit in sorted(self.max_duplicate_ngram_characters.items())
            ),
        ]
