"""The step `c4`: the line and page rules of C4 (Raffel et al. 2020, section 2.2), in the order of datatrove's `C4QualityFilter`.

For each line (str.splitlines), stripped:

    a word of more than 1000 characters       the line goes
    [1], [edit], [citation needed]            cut out of the line
    no terminal punctuation, or "..."         the line goes          (FineWeb turns this rule off)
    fewer than 3 words                        the line goes
    "lorem ipsum"                             the document goes
    "javascript"                              the line goes
    "{"                                       the document goes
    terms of use, privacy policy, …           the line goes

and the document goes if the lines that stay hold fewer than 5 sentences (text/sentences.py). The lines that stay are
joined with newlines. Phrases are found in any case of A-Z.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pyarrow
from pydantic import Field

from ingot.data.rules.c4 import CITATIONS, CURLY_BRACKET, LOREM_IPSUM, POLICIES, c4
from ingot.data.step import PerText, Rule, at_least, numbers
from ingot.data.text.characters import character_flags
from ingot.data.text.lines import lines_of
from ingot.data.text.phrases import Phrases
from ingot.data.text.texts import Texts


class C4Step(PerText):
    """The step `c4`: the line and page rules of C4 (Raffel et al. 2020, section 2.2), as datatrove has them. Rewrites the text.

    FineWeb uses them with `terminal_punctuation: false`. The bad words of C4 are a step of their own (`bad_words`).
    """

    rate = 49
    decides: ClassVar[frozenset[str]] = frozenset({"min_sentences"})

    terminal_punctuation: bool = Field(
        default=True, description="drop lines that do not end in `.`, `?`, `!`, `\"` or `'`, or that end in `...`"
    )
    min_words: int = Field(default=3, ge=0, description="a line with fewer white-space words is dropped")
    max_word_length: int = Field(default=1000, ge=1, description="a line with a longer word is dropped")
    citations: bool = Field(default=True, description="cut out `[1]`, `[]`, `[edit]` and `[citation needed]`")
    javascript: bool = Field(default=True, description="drop lines that mention javascript")
    policies: bool = Field(
        default=True, description="drop lines that mention terms of use, a privacy or cookie policy, or using cookies"
    )
    lorem_ipsum: bool = Field(default=True, description="remove documents with `lorem ipsum` in a line that would stay")
    curly_brackets: bool = Field(default=True, description="remove documents with `{` in a line that would stay")
    min_sentences: int = Field(default=5, ge=0, description="fewest sentences in the lines that stay")

    def writes(self) -> tuple[str, ...]:
        return ("text", "_c4_banned", "_c4_sentences", "_c4_removed_lines", "_c4_removed_citations")

    def measure(self, texts: Texts) -> dict[str, Any]:
        lines = lines_of(texts, "splitlines")
        phrases = Phrases.of(["lorem ipsum", "javascript", *POLICIES], ignore_case=True)
        citations = Phrases.of(CITATIONS if self.citations else [], ignore_case=False)
        rules = (self.terminal_punctuation, self.lorem_ipsum, self.javascript, self.curly_brackets, self.policies)
        result = np.empty(texts.bytes + 1, np.uint8)
        offsets = np.zeros(len(texts) + 1, np.int64)
        banned, sentences, removed_lines, removed_citations = (np.zeros(len(texts), np.int64) for _ in range(4))
        size = c4(
            texts.data,
            texts.offsets,
            lines,
            character_flags(),
            phrases,
            citations,
            rules,
            (self.min_words, self.max_word_length),
            result,
            offsets,
            banned,
            sentences,
            removed_lines,
            removed_citations,
        )
        return {
            "text": Texts(result[:size], offsets),
            "_c4_banned": banned,
            "_c4_sentences": sentences,
            "_c4_removed_lines": removed_lines,
            "_c4_removed_citations": removed_citations,
        }

    def decide(self, columns: pyarrow.Table) -> list[Rule]:
        banned = numbers(columns, "_c4_banned")
        return [
            Rule("lorem ipsum", banned == LOREM_IPSUM),
            Rule("curly bracket", banned == CURLY_BRACKET),
            at_least("sentences", numbers(columns, "_c4_sentences"), self.min_sentences),
        ]
