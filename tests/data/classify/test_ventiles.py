"""Ventiles against a plain computation in one process, over several shards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from ingot.data.engine.shard import Shard
from ingot.data.engine.work import Work
from ingot.data.steps import ventiles
from ingot.data.steps.ventiles import VentilesStep


def shards_of(table: pyarrow.Table, folder: Path, count: int) -> list[Shard]:
    shards = []
    for number, rows in enumerate(np.array_split(np.arange(len(table)), count)):
        part, path = table.take(pyarrow.array(rows)), folder / f"{count}-{number}.parquet"
        pyarrow.parquet.write_table(part, path)
        shards.append(Shard(number, f"{count}-{number}", path, len(part), 1))
    return shards


def expected(rows: list[dict[str, Any]], buckets: int) -> list[int | None]:
    found: list[int | None] = [None] * len(rows)
    for topic in {row["topic"] for row in rows}:
        members = [i for i, row in enumerate(rows) if row["topic"] == topic and row["quality"] is not None]
        members.sort(key=lambda i: (rows[i]["quality"], i))
        total, before = sum(rows[i]["tokens"] for i in members), 0
        for i in members:
            found[i] = min(before * buckets // max(total, 1), buckets - 1)
            before += rows[i]["tokens"]
    return found


@pytest.mark.parametrize("shards", [1, 3])
def test_equal_to_plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shards: int) -> None:
    random = np.random.default_rng(3)
    rows: list[dict[str, Any]] = [
        {
            "text": "x",
            "topic": [None, "law", "food", "art"][random.integers(4)],
            "quality": None
            if random.random() < 0.05
            else float(random.choice([-1.5, -0.0, 0.0, random.random(), 2.5])),
            "tokens": int(random.integers(0, 900)),
        }
        for _ in range(1500)
    ]
    rows = [{**row, "topic": row["topic"] or ""} for row in rows]
    monkeypatch.setattr(ventiles, "PARTITION_BYTES", 200 * ventiles.RECORD.itemsize)  # several partitions a topic
    step = VentilesStep(topic="topic", tokens="tokens")
    paths = step.annotate(shards_of(pyarrow.Table.from_pylist(rows), tmp_path, shards), Work(tmp_path / "work"))
    found = [value for path in paths for value in pyarrow.parquet.read_table(path).column("quality_bucket").to_pylist()]
    assert found == expected(rows, 20)


def test_weight_is_bytes_and_shares_are_equal(tmp_path: Path) -> None:
    random = np.random.default_rng(4)
    rows: list[dict[str, Any]] = [
        {"text": "x" * int(random.integers(1, 50)), "quality": float(score)} for score in random.random(4000)
    ]
    table = pyarrow.Table.from_pylist(rows)
    [path] = VentilesStep().annotate(shards_of(table, tmp_path, 1), Work(tmp_path / "work"))
    buckets = np.array(pyarrow.parquet.read_table(path).column("quality_bucket").to_pylist())
    weights = np.bincount(buckets, [len(row["text"]) for row in rows])
    assert len(weights) == 20
    assert abs(weights / weights.sum() - 0.05).max() < 0.001
    best = [row["quality"] for row, bucket in zip(rows, buckets, strict=True) if bucket == 19]
    assert min(best) >= np.quantile([row["quality"] for row in rows], 0.93)
