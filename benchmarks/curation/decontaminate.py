"""Decontamination against 100,000 evals: every mode, and datatrove's n-gram filter on the same texts and evals.

The index is built before the clock starts: it is made once for a whole run.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pyarrow

from benchmarks.curation.measure import compare, note, rate, row, sample_of
from benchmarks.decontamination import datatrove_filter
from ingot.data.contamination.step import ContaminationStep
from ingot.data.outside import STEPS

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"
FOLDERS = (
    *("aqua", "bbh", "mmlu", "arena_hard", "core_icl", "cruxeval", "gsm8k", "hellaswag", "humaneval", "ifeval", "math"),
    *("mbpp", "strongreject", "truthfulqa", "xstest"),
)
GOAL = 15.0


def measure(corpus: pyarrow.Table, quick: bool) -> list[dict[str, Any]]:
    """Megabytes a CPU-second of the scan."""
    if not DATA.is_dir():
        note(f"decontaminate is left out: no eval sets in {DATA}")
        return []
    against: list[Any] = [str(DATA / folder) for folder in (FOLDERS[:3] if quick else FOLDERS)]
    texts = corpus.select(["text"])
    size = sum(len(text.encode()) for text in texts.column("text").to_pylist())
    few, few_bytes = sample_of(texts, quick)
    few_texts = few.column("text").to_pylist()
    peer = datatrove_filter(against)
    rounds = 1 if quick else 3
    rows = []
    for name, options in (
        ("overlap, 8 words", {"step": "decontaminate", "ngram_words": 8}),
        ("overlap, 12 words", {"step": "decontaminate", "ngram_words": 12}),
        ("decon, words", {"step": "decon"}),
        ("decon, cl100k", {"step": "decon", "tokens": str(DATA / "tokenizers" / "cl100k_base.tiktoken.gz")}),
    ):
        step = STEPS.read({"against": against, **options})
        step.annotate(texts.slice(0, 10))  # builds the index, compiles
        assert isinstance(step, ContaminationStep)
        evals = sum(searched for _, searched in step.index.sizes().values())
        case = f"decontaminate: {name}, {evals:,} evals"
        if peer is not None and step.step == "decontaminate":  # n-grams of words, as the peer has them
            both = compare(partial(step.annotate, few), lambda: peer(few_texts), few_bytes, rounds)
            rows.append(row(case, *both, peer_name="datatrove, 12 words", goal=GOAL))
        else:
            rows.append(row(case, rate(partial(step.annotate, texts), size, rounds), goal=GOAL))
    return rows
