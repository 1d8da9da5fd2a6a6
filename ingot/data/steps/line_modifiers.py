"""The step `line_modifiers` removes lines that are not prose (DCLM, OLMo 3), and documents that lose too many words.

For each line (text.split("\n")), empty ones excepted:

    upper-case letters / characters > 0.5              the line goes
    digits 0-9 / characters > 0.999999                 the line goes
    "1,204 likes", "3.5K shares", … and nothing else   the line goes
    fewer than 2 white-space words                     the line goes
    "items in cart", "Read more...", "Sign-in"         cut out of lines of at most 10 words; a line left blank goes

and the document goes if more than 5 % of its words went. datamap-rs, the code of OLMo 3, divides by bytes rather than
characters, takes the dots of "Read more..." for any character, and its 10-word limit does not reach the code, because
the option has another name there; here they are what the configuration says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from ingot.data.step import PerText, Rule, at_most, numbers

if TYPE_CHECKING:
    import pyarrow

    from ingot.data.text.texts import Texts


class LineModifiersStep(PerText):
    """The line rules of DCLM and OLMo 3. Rewrites the text, and removes documents that lose too many words."""

    rate = 32
    decides: ClassVar[frozenset[str]] = frozenset({"max_removed_words"})

    max_upper_case: float = Field(
        default=0.5, ge=0, le=1, description="a line with a larger share of upper-case letters is dropped"
    )
    max_numeric: float = Field(
        default=0.999999, ge=0, le=1, description="a line that begins with a larger share of digits is dropped"
    )
    counters: bool = Field(default=True, description="drop lines such as `1,204 likes` or `3.5K shares`")
    min_words: int = Field(default=2, ge=0, description="a line with fewer white-space words is dropped")
    phrases: dict[str, Literal["any", "prefix", "suffix"]] = Field(
        default={"items in cart": "any", "Read more...": "suffix", "Sign-in": "prefix"},
        description="phrases cut out of short lines: where they stand, at the beginning, at the end, or anywhere",
    )
    max_phrase_words: int = Field(default=10, ge=0, description="phrases are cut out of lines of at most so many words")
    max_removed_words: float = Field(
        default=0.05, ge=0, le=1, description="largest share of words that a document may lose"
    )

    @field_validator("phrases")
    @classmethod
    def _long_enough(cls, phrases: dict[str, str]) -> dict[str, str]:
        if len(phrases) > 64 or any(len(phrase.encode()) < 2 for phrase in phrases):
            raise ValueError("expected at most 64 phrases of two bytes or more")
        return phrases

    @model_validator(mode="after")
    def _has_phrases(self) -> LineModifiersStep:
        if not self.phrases:
            self.refuse("max_phrase_words", because="there are no `phrases` to cut out")
        return self

    def writes(self) -> tuple[str, ...]:
        return ("text", "_removed_lines", "_removed_word_share")

    def measure(self, texts: Texts) -> dict[str, Any]:
        import numpy as np

        from ingot.data.rules.gopher_quality import per
        from ingot.data.rules.line_modifiers import COUNTED, WHERE, modify
        from ingot.data.text.characters import character_flags
        from ingot.data.text.lines import lines_of
        from ingot.data.text.phrases import Phrases
        from ingot.data.text.texts import Texts

        lines = lines_of(texts)
        names = Phrases.of(COUNTED, ignore_case=True)
        phrases = Phrases.of(list(self.phrases), ignore_case=False)
        result = np.empty(texts.bytes, np.uint8)
        offsets = np.zeros(len(texts) + 1, np.int64)
        removed_lines, removed_words, all_words = np.zeros((3, len(texts)), np.int64)
        size = modify(
            texts.data,
            lines,
            character_flags(),
            names,
            phrases,
            np.argsort(phrases.numbers),
            np.array([WHERE[where] for where in self.phrases.values()], np.int64)[phrases.numbers],
            self.max_upper_case,
            self.max_numeric,
            self.counters,
            self.min_words,
            self.max_phrase_words,
            result,
            offsets,
            removed_lines,
            removed_words,
            all_words,
        )
        return {
            "text": Texts(result[:size], offsets),
            "_removed_lines": removed_lines,
            "_removed_word_share": per(removed_words, all_words),
        }

    def decide(self, columns: pyarrow.Table) -> list[Rule]:
        share = numbers(columns, "_removed_word_share")
        return [at_most("words in removed lines", share, self.max_removed_words)]
