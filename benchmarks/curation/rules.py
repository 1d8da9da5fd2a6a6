"""The heuristic rules: each alone, all of them one after the other, and datatrove's filters on a part of the same texts.

Alone, a rule pays for cutting the texts into words and lines; together they share it. All together: rules that only
measure come first, those that rewrite the text last; no document is removed in between, so that each rule sees all.
"""

from __future__ import annotations

import random
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow

from benchmarks.curation.measure import rate, row
from ingot.data.step import PerDocument, Step
from ingot.data.steps.bad_words import BadWordsStep
from ingot.data.steps.c4 import C4Step
from ingot.data.steps.compression_ratio import CompressionRatioStep
from ingot.data.steps.fineweb import FineWebStep
from ingot.data.steps.gopher_quality import GopherQualityStep
from ingot.data.steps.gopher_repetition import GopherRepetitionStep
from ingot.data.steps.length import LengthStep
from ingot.data.steps.line_modifiers import LineModifiersStep
from ingot.data.steps.madlad import MadladStep
from ingot.data.steps.newlines import NewlinesStep
from ingot.data.steps.pii import PiiStep
from ingot.data.steps.repeated_ngrams import RepeatedNgramsStep
from ingot.data.steps.url_filter import UrlFilterStep
from ingot.data.text import lines, words
from ingot.data.text.texts import Texts

GOAL = 20.0
PEERS = {
    "gopher_quality": ("gopher_quality_filter", "GopherQualityFilter"),
    "gopher_repetition": ("gopher_repetition_filter", "GopherRepetitionFilter"),
    "fineweb": ("fineweb_quality_filter", "FineWebQualityFilter"),
    "c4": ("c4_filters", "C4QualityFilter"),
}


def all_steps(folder: Path) -> list[Step]:
    """Every rule with its defaults; the lists are small ones made for the measurement."""
    letters = random.Random(1)
    words = ["".join(letters.choices("aeiourstlnbcdfghmp", k=7)) for _ in range(400)]
    (folder / "words.txt").write_text("\n".join(words))
    (folder / "domains.txt").write_text("\n".join(f"site{number}.example" for number in range(1000)))
    return [
        UrlFilterStep(domains=[str(folder / "domains.txt")], banned_words=[str(folder / "words.txt")]),
        NewlinesStep(),
        LengthStep(),
        GopherQualityStep(),
        GopherRepetitionStep(),
        RepeatedNgramsStep(),
        FineWebStep(),
        MadladStep(),
        BadWordsStep(file=str(folder / "words.txt")),
        CompressionRatioStep(),
        LineModifiersStep(),
        C4Step(),
        PiiStep(),
    ]


def run(steps: list[Step[Any]], documents: pyarrow.Table) -> None:
    """Annotate and decide, one step after the other, from texts that nothing is remembered of."""
    words.forget()
    lines.forget()
    for step in steps:
        assert isinstance(step, PerDocument)
        columns = step.annotate(documents)
        step.decide(pyarrow.table(columns))
        if "text" in columns:
            place = documents.column_names.index("text")
            documents = documents.set_column(place, "text", columns["text"])


def peer_rate(module: str, name: str, texts: list[str]) -> float:
    """datatrove's filter on white-space words: its own tokenizer would take most of the time."""
    import importlib
    import re

    from datatrove.data import Document

    filters = importlib.import_module(f"datatrove.pipeline.filters.{module}")
    splitters = {
        "split_into_words": lambda text, language="": text.split(),
        "split_into_sentences": lambda text, language="": re.split(r"[.!?]+\s+", text),
    }
    saved = {function: getattr(filters, function) for function in splitters if hasattr(filters, function)}
    for function in saved:
        setattr(filters, function, splitters[function])
    try:
        made = getattr(filters, name)()
        size = sum(len(text.encode()) for text in texts)
        return rate(lambda: [made.filter(Document(text=text, id="")) for text in texts], size, rounds=1)
    finally:
        for function, original in saved.items():
            setattr(filters, function, original)


def measure(corpus: pyarrow.Table, quick: bool) -> list[dict[str, Any]]:
    """See benchmarks/data.py."""
    texts = Texts.of(corpus.column("text"))
    documents = pyarrow.table(
        {
            "text": texts.column(),
            "url": pyarrow.array([f"https://www.site{number}.test/page" for number in range(len(texts))]),
        }
    )
    part: list[str] = []
    for text in corpus.column("text").to_pylist():
        if sum(map(len, part)) > (1_000_000 if quick else 3_000_000):
            break
        part.append(text)
    with tempfile.TemporaryDirectory() as folder:
        steps = all_steps(Path(folder))
        run(steps, documents.slice(0, 10))  # compile
        rows = []
        for step in steps:
            peer = None
            if step.step in PEERS:
                try:
                    peer = peer_rate(*PEERS[step.step], part)
                except ImportError as error:
                    print(f"datatrove is left out: {error}", file=sys.stderr)
            ours = rate(partial(run, [step], documents), texts.bytes, rounds=1 if quick else 3)
            rows.append(row(f"rule {step.step}", ours, peer, peer_name="datatrove" if peer else ""))
        together = rate(lambda: run(steps, documents), texts.bytes, rounds=1 if quick else 3)
        rows.append(row("all heuristic rules together", together, goal=GOAL))
    return rows
