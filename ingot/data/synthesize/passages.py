"""Documents to passages: paragraphs joined up to a number of words; a paragraph that is longer is cut at a sentence.

Invariant: passages are slices of the text, in order, and never overlap; what is shorter than `shortest` is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ingot.data.synthesize.sample import Passage

PARAGRAPH = re.compile(r"\S(?:.*?\S)??(?=\s*\n\s*\n|\s*\Z)", re.DOTALL)
SENTENCE = re.compile(r"\S.*?(?:[.!?…][\"'”’)\]]*(?=\s)|\Z)", re.DOTALL)


def passages(document: str, text: str, shortest: int, longest: int) -> Iterator[Passage]:
    """The passages of a document with `shortest` to `longest` words."""
    start = end = words = 0
    for first, last in _pieces(text, longest):
        count = len(text[first:last].split())
        if words and words + count > longest:
            if words >= shortest:
                yield Passage(document, start, end, text[start:end])
            words = 0
        if not words:
            start = first
        end, words = last, words + count
    if words >= shortest:
        yield Passage(document, start, end, text[start:end])


def _pieces(text: str, longest: int) -> Iterator[tuple[int, int]]:
    """Paragraphs as they are, and the sentences of those with more than `longest` words; a longer sentence is cut too."""
    for paragraph in PARAGRAPH.finditer(text):
        if len(paragraph[0].split()) <= longest:
            yield paragraph.span()
            continue
        for sentence in SENTENCE.finditer(text, *paragraph.span()):
            words = list(re.compile(r"\S+").finditer(text, *sentence.span()))
            for at in range(0, len(words), longest):
                part = words[at : at + longest]
                yield part[0].start(), part[-1].end()


def sentences(text: str) -> list[str]:
    """The sentences of a text, white space inside them made single."""
    return [" ".join(found[0].split()) for found in SENTENCE.finditer(text)]
