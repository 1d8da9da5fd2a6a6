"""Asks how often words stand in a long document; the answers are counted, no model is asked.

Invariant: the answer is the number of whole-word, case-blind occurrences; it is counted a second time, in another way, before the
sample is accepted.
"""

from __future__ import annotations

import re
from collections import Counter
from hashlib import blake2b
from typing import Any, ClassVar

from pydantic import Field

from ingot.data.synthesize.sample import Refused, SourcePassage, WriterRequest
from ingot.data.synthesize.sections import Frequencies, SectionTask, words_of


class CountTask(SectionTask):
    """Questions about how often words stand in a long document; the answers are counted, no model is asked.

    Common-word extraction of OLMo 3's long-context data (arXiv 2512.13961): words are picked by tf-idf, the question
    needs every part of the text.
    """

    asks: ClassVar[bool] = False
    verified: ClassVar[str] = "counted"
    words: int = Field(default=8, ge=2, le=50, description="words asked about")
    min_count: int = Field(default=3, ge=1, description="fewest occurrences of a word asked about")
    max_count: int = Field(default=40, ge=1, description="most occurrences of one")

    def ask(self, section: SourcePassage, frequencies: Frequencies) -> list[WriterRequest]:
        """One question about several words of a section; none if it has too few that are often enough."""
        chosen = frequencies.telling(section.text, self.min_count, self.max_count)[: self.words]
        if len(chosen) < self.words:
            return []
        chosen.sort(key=lambda word: blake2b(f"{section.id} {word}".encode(), digest_size=8).digest())
        counts = Counter(words_of(section.text))
        pair = sorted(chosen[:2])
        most = max(chosen, key=lambda word: (counts[word], word))
        if sum(counts[word] == counts[most] for word in chosen) > 1:
            return []  # two answers to one question
        listed = ", ".join(chosen)
        question = (
            f"How often does each of these words stand in the text above (whole words, capitals or not): {listed}? Which one "
            f"is the most frequent, and how often do “{pair[0]}” and “{pair[1]}” stand in it together?"
        )
        answer = "\n".join(f"{word}: {counts[word]}" for word in chosen)
        answer += f"\nMost frequent: {most}\n{pair[0]} and {pair[1]} together: {counts[pair[0]] + counts[pair[1]]}"
        facts: dict[str, Any] = {
            "counts": {word: counts[word] for word in chosen},
            "most": most,
            "pair": pair,
            "answer": answer,
        }
        return [self.request(section, question, **facts)]

    def check(self, request: WriterRequest, answer: str) -> str:
        """Text, question, answer. Counts again with one search a word."""
        for word, number in request.facts["counts"].items():
            again = len(re.findall(rf"(?<![^\W\d_]){re.escape(word)}(?![^\W\d_])", request.passage.text.casefold()))
            if again != number:
                raise Refused("counts disagree")
        return f"{request.passage.text}\n\n{request.prompt}\n\n{request.facts['answer']}"
