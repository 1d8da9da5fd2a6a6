"""Asks about sections of long documents by the words that tell them apart.

Words are picked by tf-idf among those whose count is in range: tf(w) · ln(N / df(w)), N sections. Such tasks need the whole text
at once, which is what long-context training lacks (OLMo 3, arXiv 2512.13961, section on long context).
"""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator

from pydantic import Field

from ingot.data.synthesize.sample import SourcePassage, WriterRequest
from ingot.data.synthesize.task import Passages, SynthesisTask

WORD = re.compile(r"[^\W\d_]+")
SHORTEST_WORD = 4


class SectionTask(SynthesisTask):
    """What tasks over long documents have in common."""

    shortest: int = Field(default=2000, ge=1, description="fewest words of the document")
    longest: int = Field(default=30_000, ge=1, description="most words; a longer document is cut into such sections")

    @abstractmethod
    def ask(self, section: SourcePassage, frequencies: Frequencies) -> list[WriterRequest]:
        """What is asked about a section; nothing if it does not fit."""

    def requests(self, passages: Passages) -> Iterator[WriterRequest]:
        frequencies = Frequencies()
        for section in passages():
            frequencies.add([section.text])
        for section in passages():
            yield from self.ask(section, frequencies)


def words_of(text: str) -> list[str]:
    """Runs of letters, case-blind."""
    return [word.casefold() for word in WORD.findall(text)]


class Frequencies:
    """In how many sections each word stands."""

    def __init__(self) -> None:
        self.sections = 0
        self.counts: Counter[str] = Counter()

    def add(self, texts: Iterable[str]) -> None:
        """Count some sections."""
        for text in texts:
            self.sections += 1
            self.counts.update(set(words_of(text)))

    def telling(self, text: str, lowest: int, highest: int) -> list[str]:
        """Words that stand `lowest` to `highest` times in the text, the most telling first."""
        found = Counter(words_of(text))
        scores = {
            word: count * math.log((1 + self.sections) / self.counts[word])
            for word, count in found.items()
            if lowest <= count <= highest and len(word) >= SHORTEST_WORD and self.counts[word]
        }
        return sorted(scores, key=lambda word: (-scores[word], word))
