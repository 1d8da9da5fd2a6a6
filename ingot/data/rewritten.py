"""What steps changed in the texts, for a person to see: samples of documents before and after each step that rewrites.

A row of rewritten.jsonl: {"id", "source", "step", "before", "after", "skipped"}. Both texts are shown from the same place,
shortly before the first difference; `skipped` characters come before it. To stay cheap on any corpus only a few shards
are looked at; of what changed there the samples are those with the smallest hash of their ids.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any

from ingot.data.engine.shard import Shard
from ingot.data.funnel import first_difference, sample_key

SHARDS = 4  # that are looked at, from the first to the last
SAMPLES = 12  # of a step, at most
SHOWN = 1500  # characters of each text
LEAD = 200  # characters before the first difference


def rewritten_samples(step: str, before: Sequence[Shard], after: Sequence[Shard]) -> list[dict[str, Any]]:
    """Samples of what `step` made of the documents; `before` and `after` are the same shards."""
    chosen = sorted({round(part * (len(before) - 1) / (SHARDS - 1)) for part in range(SHARDS)})
    found = [row | {"step": step} for number in chosen for row in changed(before[number], after[number])]
    return heapq.nsmallest(SAMPLES, found, key=lambda row: sample_key(row["id"]))


def changed(before: Shard, after: Shard) -> list[dict[str, Any]]:
    """The samples of one shard."""
    import pyarrow
    import pyarrow.compute

    old = before.read(["id", "source", "text"], removed=True)
    new = after.read(["text"], removed=True).column("text").cast(pyarrow.large_string())
    differs = pyarrow.compute.not_equal(old.column("text").cast(pyarrow.large_string()), new)  # null: removed earlier
    rows = pyarrow.compute.indices_nonzero(differs.fill_null(False).combine_chunks()).to_pylist()
    names = old.column("id").take(pyarrow.array(rows, pyarrow.int64())).to_pylist()
    first = heapq.nsmallest(SAMPLES, zip(names, rows, strict=True), key=lambda pair: sample_key(pair[0]))
    return [sample(old.slice(row, 1).to_pylist()[0], new[row].as_py()) for _, row in first]


def sample(document: dict[str, Any], after: str) -> dict[str, Any]:
    """A row of rewritten.jsonl without its step."""
    before = document["text"]
    start = max(0, first_difference(before, after) - LEAD)
    shown = {"before": before[start : start + SHOWN], "after": after[start : start + SHOWN], "skipped": start}
    return {"id": document["id"], "source": document["source"], **shown}
