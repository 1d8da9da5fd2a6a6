"""Samples of documents for a person to read: removed ones (removed.jsonl), and texts before and after a rewrite.

removed.jsonl takes its samples from those that every part of removed/ carries. A copy is shown with the document that stayed,
both from shortly before their first difference if that is far down.

A row of rewritten.jsonl: {"id", "source", "step", "before", "after", "skipped"}. Both texts are shown from the same position,
shortly before the first difference; `skipped` characters come before it. To stay cheap on any corpus only a few shards
are looked at; of what changed there the samples are those with the smallest hash of their ids.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow
import pyarrow.compute

from ingot.data.engine.shard import ROW_BITS, Shard
from ingot.data.engine.store import FinishedTask
from ingot.data.funnel import SAMPLE_CHARACTERS, first_difference, sample_key
from ingot.data.write import SAMPLES
from ingot.workspace.files import read_jsonl

ROW = (1 << ROW_BITS) - 1


def collect_samples(
    done: Sequence[FinishedTask], before: dict[str, Sequence[Shard]], count: int
) -> list[dict[str, Any]]:
    """The samples of all parts, step by step; `before` are the shards as each step found them."""
    by_step: dict[str, list[dict[str, Any]]] = {step: [] for step in before}
    for task in done:
        for row in read_jsonl(task.file(SAMPLES)):
            by_step[row["step"]].append(row)
    chosen = [row for rows in by_step.values() for row in over_rules(rows, count)]
    add_partners([row for row in chosen if row["partner"] >= 0], before)
    return [{name: value for name, value in row.items() if name not in ("own", "partner")} for row in chosen]


def over_rules(rows: Sequence[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    """The first samples of a step, taking turns between its rules: a rare reason is shown as well as a common one."""
    seen: Counter[str] = Counter()
    turns = []
    for row in sorted(rows, key=lambda row: sample_key(row["id"])):
        turns.append((seen[row["rule"]], row))
        seen[row["rule"]] += 1
    return [row for _, row in sorted(turns, key=lambda pair: pair[0])[:count]]


def add_partners(rows: Sequence[dict[str, Any]], before: dict[str, Sequence[Shard]]) -> None:
    """Add the text that stayed to each removed one. Every shard is read once."""
    wanted: dict[tuple[str, int], set[int]] = {}
    for row in rows:
        for location in (row["own"], row["partner"]):
            wanted.setdefault((row["step"], location >> ROW_BITS), set()).add(location)
    texts: dict[tuple[str, int], str] = {}
    for (step, number), locations in wanted.items():
        column = before[step][number].read(["text"], removed=True).column("text")
        texts |= {(step, location): column[location & ROW].as_py() or "" for location in locations}
    for row in rows:
        removed, stayed = texts[row["step"], row["own"]], texts[row["step"], row["partner"]]
        start = first_difference(removed, stayed) - SAMPLE_CHARACTERS // 4
        if start < SAMPLE_CHARACTERS // 2 or removed == stayed:
            start = 0
        row["text"], row["duplicate_text"] = (text[start : start + SAMPLE_CHARACTERS] for text in (removed, stayed))
        if start:
            row["skipped"] = start  # characters before what is shown


SHARDS = 4  # that are looked at, from the first to the last
REWRITTEN = 12  # samples of a step, at most
SHOWN = 1500  # characters of each text
LEAD = 200  # characters before the first difference


def rewritten_samples(step: str, before: Sequence[Shard], after: Sequence[Shard]) -> list[dict[str, Any]]:
    """Samples of what `step` made of the documents; `before` and `after` are the same shards."""
    chosen = sorted({round(part * (len(before) - 1) / (SHARDS - 1)) for part in range(SHARDS)})
    found = [row | {"step": step} for number in chosen for row in changed(before[number], after[number])]
    return heapq.nsmallest(REWRITTEN, found, key=lambda row: sample_key(row["id"]))


def changed(before: Shard, after: Shard) -> list[dict[str, Any]]:
    """The samples of one shard."""
    old = before.read(["id", "source", "text"], removed=True)
    new = after.read(["text"], removed=True).column("text").cast(pyarrow.large_string())
    differs = pyarrow.compute.not_equal(old.column("text").cast(pyarrow.large_string()), new)  # null: removed earlier
    rows = pyarrow.compute.indices_nonzero(differs.fill_null(False).combine_chunks()).to_pylist()
    names = old.column("id").take(pyarrow.array(rows, pyarrow.int64())).to_pylist()
    first = heapq.nsmallest(REWRITTEN, zip(names, rows, strict=True), key=lambda pair: sample_key(pair[0]))
    return [sample(old.slice(row, 1).to_pylist()[0], new[row].as_py()) for _, row in first]


def sample(document: dict[str, Any], after: str) -> dict[str, Any]:
    """A row of rewritten.jsonl without its step."""
    before = document["text"]
    start = max(0, first_difference(before, after) - LEAD)
    shown = {"before": before[start : start + SHOWN], "after": after[start : start + SHOWN], "skipped": start}
    return {"id": document["id"], "source": document["source"], **shown}
