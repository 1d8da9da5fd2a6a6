"""datatrove's own filters with our definitions of a word and of a sentence, to compare decisions and reasons with."""

from __future__ import annotations

import re
from typing import Any

import pytest


def whitespace_words(text: str, language: str = "") -> list[str]:
    return text.split()


def sentences(text: str, language: str = "") -> list[str]:
    return [piece for piece in re.split(r"[.!?]+\s+", text) if piece.strip()]


def decisions(monkeypatch: pytest.MonkeyPatch, module: str, name: str, texts: list[str], **options: Any) -> list[Any]:
    """For each text (reason or None, the text afterwards) as a filter of datatrove decides."""
    data = pytest.importorskip("datatrove.data")
    filters = pytest.importorskip(f"datatrove.pipeline.filters.{module}")
    for function, replacement in (("split_into_words", whitespace_words), ("split_into_sentences", sentences)):
        if hasattr(filters, function):
            monkeypatch.setattr(filters, function, replacement)
    made = getattr(filters, name)(**options)
    found = []
    for number, text in enumerate(texts):
        document = data.Document(text=text, id=str(number))
        answer = made.filter(document)
        found.append((None if answer is True else answer[1], document.text))
    return found
