"""Too short or too long, in characters and in words. OLMo 3 keeps web pages of 150 characters or more."""

from __future__ import annotations

import pyarrow
import pyarrow.compute

from ingot.data.rules.config import LengthStep
from ingot.data.step import PerDocument, Rule, at_least, at_most, numbers
from ingot.data.text.texts import Texts
from ingot.data.text.words import words_of


class Length(PerDocument[LengthStep]):
    """See the module."""

    def annotate(self, documents: pyarrow.Table) -> dict[str, pyarrow.Array]:
        """See PerDocument."""
        texts = Texts.of(documents.column("text"))
        return {
            "_length_characters": pyarrow.compute.utf8_length(texts.column()).cast(pyarrow.int64()),
            "_length_words": pyarrow.array(words_of(texts, self.config.words).per_text()),
        }

    def rules(self, columns: pyarrow.Table) -> list[Rule]:
        """See Step."""
        limits = self.config
        found = []
        for name, least, most in (
            ("characters", limits.min_characters, limits.max_characters),
            ("words", limits.min_words, limits.max_words),
        ):
            values = numbers(columns, f"_length_{name}")
            found.append(at_least(name, values, least))
            if most is not None:
                found.append(at_most(name, values, most))
        return found
