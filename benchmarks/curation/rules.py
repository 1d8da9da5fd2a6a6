"""The heuristic rules: each alone, all of them one after the other, and datatrove's filters on a part of the same texts.

Alone, a rule pays for cutting the texts into words and lines; together they share it. All together: rules that only
measure come first, those that rewrite the text last; no document is removed in between, so that each rule sees all.
"""

from __future__ import annotations

import importlib
import random
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow

from benchmarks.curation.measure import compare, note, rate, row, sample_of
from ingot.data.outside import STEPS
from ingot.data.step import PerDocument, Step
from ingot.data.steps.bad_words import BadWordsStep
from ingot.data.steps.c4 import C4Step
from ingot.data.steps.fineweb import FineWebStep
from ingot.data.steps.gopher_quality import GopherQualityStep
from ingot.data.steps.gopher_repetition import GopherRepetitionStep
from ingot.data.steps.length import LengthStep
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


def example(name: str) -> Step:
    """A step of examples/steps/."""
    return STEPS.read({"step": f"{Path(__file__).parents[2]}/examples/steps/{name}"})


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
        example("madlad.py:MadladStep"),
        BadWordsStep(file=str(folder / "words.txt")),
        example("compression_ratio.py:CompressionRatioStep"),
        example("line_modifiers.py:LineModifiersStep"),
        C4Step(),
        PiiStep(),
    ]


def run(steps: list[Step], documents: pyarrow.Table) -> None:
    """Annotate and decide, one step after the other, from texts that nothing is remembered of."""
    words.forget()
    lines.forget()
    for step in steps:
        assert isinstance(step, PerDocument)
        columns = step.annotate(documents)
        step.decide(pyarrow.table(columns))
        if "text" in columns:
            index = documents.column_names.index("text")
            documents = documents.set_column(index, "text", columns["text"])


@contextmanager
def peer_of(step: str) -> Iterator[Callable[[list[str]], Any]]:
    """datatrove's filter on white-space words, as ours has them: its own tokenizer would take most of the time."""
    from datatrove.data import Document

    module, name = PEERS[step]
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
        yield lambda texts: [made.filter(Document(text=text, id="")) for text in texts]
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
    few, few_bytes = sample_of(documents, quick)
    few_texts = few.column("text").to_pylist()
    rounds = 1 if quick else 3
    with tempfile.TemporaryDirectory() as folder:
        steps = all_steps(Path(folder))
        run(steps, documents.slice(0, 10))  # compile
        rows = []
        for step in steps:
            alone = partial(run, [step])
            rows.append(row(f"rule {step.step}", rate(partial(alone, documents), texts.bytes, rounds)))
            if step.step in PEERS:
                try:
                    with peer_of(step.step) as peer:
                        both = compare(partial(alone, few), partial(peer, few_texts), few_bytes, rounds)
                except ImportError as error:
                    note(f"datatrove is left out: {error}")
                    continue
                rows.append(row(f"rule {step.step}, sample", *both, peer_name="datatrove"))
        together = rate(lambda: run(steps, documents), texts.bytes, rounds)
        rows.append(row("all heuristic rules together", together, goal=GOAL))
    return rows
