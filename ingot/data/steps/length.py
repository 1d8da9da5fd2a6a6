"""The step `length` bounds characters and words. OLMo 3 takes web pages of 150 characters or more."""

from __future__ import annotations

from typing import Any, ClassVar

import pyarrow
import pyarrow.compute
from pydantic import Field

from ingot.data.step import WORDS, PerText, Rule, Words, at_least, at_most, numbers
from ingot.data.text.texts import Texts
from ingot.data.text.words import words_of


class LengthStep(PerText):
    """Too short or too long. The default is that of OLMo 3 for web pages."""

    rate = 126
    decides: ClassVar[frozenset[str]] = frozenset({"min_characters", "max_characters", "min_words", "max_words"})

    words: Words = Field(default="whitespace", description=WORDS)
    min_characters: int = Field(default=150, ge=0, description="fewest characters")
    max_characters: int | None = Field(default=None, ge=1, description="most characters")
    min_words: int = Field(default=0, ge=0, description="fewest words")
    max_words: int | None = Field(default=None, ge=1, description="most words")

    def writes(self) -> tuple[str, ...]:
        return ("_length_characters", "_length_words")

    def measure(self, texts: Texts) -> dict[str, Any]:
        return {
            "_length_characters": pyarrow.compute.utf8_length(texts.column()).cast(pyarrow.int64()),
            "_length_words": words_of(texts, self.words).per_text(),
        }

    def decide(self, columns: pyarrow.Table) -> list[Rule]:
        found = []
        for name, least, most in (
            ("characters", self.min_characters, self.max_characters),
            ("words", self.min_words, self.max_words),
        ):
            values = numbers(columns, f"_length_{name}")
            found.append(at_least(name, values, least))
            if most is not None:
                found.append(at_most(name, values, most))
        return found
