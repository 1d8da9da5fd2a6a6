"""Passages of documents, the requests made about them, and the samples that come of it.

A passage is a run of paragraphs up to a number of words; a paragraph that is longer is cut at a sentence.

Invariants: passages are slices of the text, in order, and never overlap; what is shorter than `shortest` is left out. A
request's key is the hash of everything that decides the answer (the prompt, the sampling, the writer), so that an answer on
disk is never used for another question. A sample's lineage names the parent document, the very characters it was made from
and their hash, the task, the prompt and the writer.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ingot.workspace.config import content_hash


@dataclass(frozen=True)
class SourcePassage:
    """Characters [start, end) of a document."""

    document: str
    start: int
    end: int
    text: str

    @property
    def id(self) -> str:
        """Names the passage."""
        return f"{self.document}[{self.start}:{self.end}]"

    @property
    def sha256(self) -> str:
        """Of the passage's text."""
        return hashlib.sha256(self.text.encode()).hexdigest()


@dataclass(frozen=True)
class WriterRequest:
    """One question to a writer about one passage. `variant` tells rephrasings of the same passage apart."""

    task: str
    passage: SourcePassage
    prompt: str
    variant: int = 0
    facts: dict[str, Any] = field(default_factory=dict)  # what the check of the answer needs besides the passage

    def key(self, writer: str, settings: dict[str, Any]) -> str:
        """Names the question with everything that decides its answer."""
        return content_hash([self.task, self.passage.id, self.variant, self.prompt, writer, settings], 24)


@dataclass(frozen=True)
class MadeDocument:
    """A made document."""

    id: str
    text: str
    request: WriterRequest
    writer: str
    verified: str  # how: "checks", "counted", "ran"

    def row(self) -> dict[str, Any]:
        """A row of the documents artifact, lineage included."""
        passage = self.request.passage
        return {
            "id": self.id,
            "text": self.text,
            "source": f"synthetic-{self.request.task}",
            "kind": "prose",
            "quality": 1.0,
            "parent_id": passage.document,
            "parent_start": passage.start,
            "parent_end": passage.end,
            "parent_sha256": passage.sha256,
            "task": self.request.task,
            "variant": self.request.variant,
            "prompt_sha256": hashlib.sha256(self.request.prompt.encode()).hexdigest(),
            "writer": self.writer,
            "verified": self.verified,
        }


class Refused(Exception):
    """The answer does not do; the message is the reason, a few words that can be counted."""


PARAGRAPH = re.compile(r"\S(?:.*?\S)??(?=\s*\n\s*\n|\s*\Z)", re.DOTALL)
SENTENCE = re.compile(r"\S.*?(?:[.!?…][\"'”’)\]]*(?=\s)|\Z)", re.DOTALL)


def passages(document: str, text: str, shortest: int, longest: int) -> Iterator[SourcePassage]:
    """The passages of a document with `shortest` to `longest` words."""
    start = end = words = 0
    for first, last in _parts(text, longest):
        count = len(text[first:last].split())
        if words and words + count > longest:
            if words >= shortest:
                yield SourcePassage(document, start, end, text[start:end])
            words = 0
        if not words:
            start = first
        end, words = last, words + count
    if words >= shortest:
        yield SourcePassage(document, start, end, text[start:end])


def _parts(text: str, longest: int) -> Iterator[tuple[int, int]]:
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
