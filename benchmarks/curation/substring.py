"""Substring deduplication, end to end, against the construction of one suffix array alone (libdivsufsort).

Ours reads Parquet shards, finds the repeats, cuts them out and writes Parquet. The peer only sorts the suffixes of the
same bytes in memory; finding and cutting the repeats would come on top.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet

from benchmarks.curation.measure import compare, note, rate, row
from ingot.data.engine.shard import Shard
from ingot.data.engine.work import Work
from ingot.data.steps.substring_dedup import SubstringDedupStep
from ingot.data.text.texts import Texts

SHARD_BYTES = 32_000_000
MOST_BYTES = 32_000_000  # sorting suffixes gets slower with size: both are measured on at most this much


def shards_of(corpus: pyarrow.Table, folder: Path) -> list[Shard]:
    """The texts in Parquet files of some tens of megabytes."""
    ends = np.cumsum(np.diff(Texts.of(corpus.column("text")).offsets))
    numbers = ends // SHARD_BYTES
    shards: list[Shard] = []
    for number in np.unique(numbers).tolist():
        rows = np.flatnonzero(numbers == number)
        base = folder / f"{number}.parquet"
        pyarrow.parquet.write_table(corpus.select(["text"]).slice(int(rows[0]), len(rows)), base)
        size = int(ends[rows[-1]] - (ends[rows[0] - 1] if rows[0] else 0))
        shards.append(Shard(len(shards), f"shard {number}", base, len(rows), size))
    return shards


def measure(corpus: pyarrow.Table, quick: bool) -> list[dict[str, Any]]:
    """Rows for repeats of 500 bytes (Olmo 3) and of 100 bytes (Lee et al.)."""
    rounds = 1 if quick else 3
    sizes = np.cumsum(np.diff(Texts.of(corpus.column("text")).offsets))
    corpus = corpus.slice(0, int(np.searchsorted(sizes, MOST_BYTES)) + 1)
    texts = Texts.of(corpus.column("text"))
    peer, name = None, ""
    try:
        import pydivsufsort
    except ImportError:
        note("substring dedup: pydivsufsort is not installed, no peer")
    else:
        joined = texts.data[texts.offsets[0] : texts.offsets[-1]].copy()
        peer, name = partial(pydivsufsort.divsufsort, joined), "divsufsort, sorting alone"
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        shards = shards_of(corpus, Path(folder))
        for length, goal in ((500, 5.0), (100, None)):
            step = SubstringDedupStep(min_bytes=length)
            attempt = iter(range(1_000))

            def run(step: SubstringDedupStep = step, length: int = length, attempt: Any = attempt) -> None:
                step.annotate(shards, Work(Path(folder) / f"{length}-{next(attempt)}"))

            step.annotate(shards[:1], Work(Path(folder) / f"compile-{length}"))
            case = f"substring dedup, {length} bytes"
            if peer is None:
                rows.append(row(case, rate(run, texts.bytes, rounds), goal=goal))
            else:
                rows.append(row(case, *compare(run, peer, texts.bytes, rounds), peer_name=name, goal=goal))
    return rows
