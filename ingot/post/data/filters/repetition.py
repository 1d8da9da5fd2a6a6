"""Drops conversations in which the assistant loops: the same words, sentences or paragraphs again and again.

    words in a row     a sequence of 1 to 13 words stands 32 times one after the other (OLMo 3; data/steps/repeated_ngrams.py)
    sentences          the same sentence four times in a row, or 40 times in all
    paragraphs         the same paragraph ten times

The limits for sentences and paragraphs are those of OLMo 3's thinking traces (open-instruct, filter_ngram_repetitions.py), which
looks at sentences of ten characters and paragraphs of twenty or more. Lines of code and of mathematics repeat by nature: as
there, a sentence or paragraph with their signs may repeat twice as often.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from pydantic import Field

from ingot.post.data.conversations.conversation_filter import ConversationFilter

if TYPE_CHECKING:
    from ingot.post.data.conversations.conversation import Conversation

SENTENCE = re.compile(r"[.!?]+\s|\n")
SIGNS = re.compile(r"[=+*/^<>{}\[\]\\|()_]")
LONG_SENTENCE, LONG_PARAGRAPH = 10, 20  # characters


class RepetitionFilter(ConversationFilter):
    """Loops of words, sentences or paragraphs in what the assistant writes."""

    longest_ngram: int = Field(
        13, ge=1, le=100, description="words of a sequence that is looked for in a row, at the most"
    )
    ngrams_in_a_row: int = Field(32, ge=2, description="times in a row from which such a sequence is a loop")
    sentences_in_a_row: int = Field(4, ge=2, description="equal sentences in a row")
    sentences: int = Field(40, ge=2, description="equal sentences in all")
    paragraphs: int = Field(10, ge=2, description="equal paragraphs in all")

    def reason(self, conversation: Conversation) -> str | None:
        for message in conversation.answers:
            for text in (message.thinking or "", message.content):
                if found := self.loop(text):
                    return found
        return None

    def loop(self, text: str) -> str | None:
        """What repeats in a text, if it does too often."""
        sentences = [each.strip() for each in SENTENCE.split(text) if len(each.strip()) >= LONG_SENTENCE]
        for sentence, group in groupby(sentences):
            if (times := len(list(group))) >= _limit(self.sentences_in_a_row, sentence):
                return f"{times} times in a row: {sentence[:80]!r}"
        paragraphs = [each.strip() for each in text.split("\n\n") if len(each.strip()) >= LONG_PARAGRAPH]
        for parts, limit in ((sentences, self.sentences), (paragraphs, self.paragraphs)):
            for part, times in Counter(parts).most_common(1):
                if times >= _limit(limit, part):
                    return f"{times} times: {part[:80]!r}"
        words = text.split()
        for size in range(1, self.longest_ngram + 1):
            if (times := _most_in_a_row(words, size, self.ngrams_in_a_row)) >= self.ngrams_in_a_row:
                return f"{size} words {times} times in a row"
        return None


def _limit(limit: int, text: str) -> int:
    return 2 * limit if SIGNS.search(text) else limit


def _most_in_a_row(words: Sequence[str], size: int, enough: int) -> int:
    """How often some sequence of `size` words stands in a row: (r − 1) · size words equal the word `size` before."""
    longest = run = 0
    if len(words) < size * enough:
        return 0
    for before, word in zip(words, words[size:], strict=False):
        run = run + 1 if before == word else 0
        longest = max(longest, run)
    return longest // size + 1
