"""Samples of removed documents for a person to read (removed.jsonl), from those that every part of removed/ brought along.

A copy is shown beside the document that stayed, both from shortly before their first difference if that is far down.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from ingot.data.engine.shard import ROW_BITS, Shard
from ingot.data.engine.store import Done
from ingot.data.funnel import SAMPLE_CHARACTERS, first_difference, sample_key
from ingot.data.write import SAMPLES
from ingot.workspace.files import read_jsonl

ROW = (1 << ROW_BITS) - 1


def collect_samples(done: Sequence[Done], before: dict[str, Sequence[Shard]], count: int) -> list[dict[str, Any]]:
    """The samples of all parts, step by step; `before` are the shards as each step found them."""
    by_step: dict[str, list[dict[str, Any]]] = {step: [] for step in before}
    for task in done:
        for row in read_jsonl(task.file(SAMPLES)):
            by_step[row["step"]].append(row)
    chosen = [row for rows in by_step.values() for row in over_rules(rows, count)]
    add_partners([row for row in chosen if row["partner"] >= 0], before)
    return [{name: value for name, value in row.items() if name not in ("own", "partner")} for row in chosen]


def over_rules(rows: Sequence[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    """The first samples of a step, taking turns between its rules: a rare reason is seen beside a common one."""
    seen: Counter[str] = Counter()
    turns = []
    for row in sorted(rows, key=lambda row: sample_key(row["id"])):
        turns.append((seen[row["rule"]], row))
        seen[row["rule"]] += 1
    return [row for _, row in sorted(turns, key=lambda pair: pair[0])[:count]]


def add_partners(rows: Sequence[dict[str, Any]], before: dict[str, Sequence[Shard]]) -> None:
    """Put the text that stayed beside each removed one. Every shard is read once."""
    wanted: dict[tuple[str, int], set[int]] = {}
    for row in rows:
        for place in (row["own"], row["partner"]):
            wanted.setdefault((row["step"], place >> ROW_BITS), set()).add(place)
    texts: dict[tuple[str, int], str] = {}
    for (step, number), places in wanted.items():
        column = before[step][number].read(["text"], removed=True).column("text")
        texts |= {(step, place): column[place & ROW].as_py() or "" for place in places}
    for row in rows:
        removed, kept = texts[row["step"], row["own"]], texts[row["step"], row["partner"]]
        start = first_difference(removed, kept) - SAMPLE_CHARACTERS // 4
        if start < SAMPLE_CHARACTERS // 2 or removed == kept:
            start = 0
        row["text"], row["duplicate_text"] = (text[start : start + SAMPLE_CHARACTERS] for text in (removed, kept))
        if start:
            row["skipped"] = start  # characters before what is shown
