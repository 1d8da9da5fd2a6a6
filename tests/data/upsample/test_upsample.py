"""The step `upsample`: copies follow the curve, whatever the shards."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from ingot.data.apply import apply
from ingot.data.engine.shard import Shard
from ingot.data.engine.work import Work
from ingot.data.steps.upsample import UpsampleStep
from ingot.data.steps.upsample.curve import solve
from ingot.workspace.errors import DataError


def corpus(count: int = 6_000) -> list[dict[str, Any]]:
    """Documents of two topics with as many in each bucket, and a score that orders them the same way."""
    generator = random.Random(0)
    rows = []
    for number in range(count):
        bucket = number % 20
        rows.append(
            {
                "id": f"document {number}",
                "text": "x",
                "topic": "science" if number % 3 else "sport",
                "quality_bucket": bucket,
                "quality": bucket + generator.random() * 0.9,
                "tokens": 100.0,
            }
        )
    return rows


def run(rows: list[dict[str, Any]], config: UpsampleStep, folder: Path, shards: int) -> dict[str, tuple[int, float]]:
    """Copies and rate by id."""
    found = {}
    made = []
    pieces = [rows[number::shards] for number in range(shards)]
    for number, piece in enumerate(pieces):
        base = folder / f"{number}.parquet"
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(piece), base)
        made.append(Shard(number, f"{number} of {shards}", base, len(piece), len(piece)))
    paths = config.annotate(made, Work(folder / "work"))
    for piece, path in zip(pieces, paths, strict=True):
        for row, columns in zip(piece, pyarrow.parquet.read_table(path).to_pylist(), strict=True):
            found[row["id"]] = (columns[config.copies], columns["upsample_rate"])
    return found


def test_rates_are_the_curve_and_copies_meet_the_targets(tmp_path: Path) -> None:
    rows = corpus()
    available = {topic: sum(row["tokens"] for row in rows if row["topic"] == topic) for topic in ("science", "sport")}
    config = UpsampleStep(targets={"science": 2.5 * available["science"]}, ratio=0.5, tokens="tokens")
    found = run(rows, config, tmp_path, 1)
    for topic, ratio in (("science", 2.5), ("sport", 0.5)):
        mine = [row for row in rows if row["topic"] == topic]
        rates = solve(ratio, np.linspace(0, 1, 21)).rates(np.linspace(0, 1, 21))
        for row in mine:
            copies, rate = found[row["id"]]
            assert rate == pytest.approx(rates[row["quality_bucket"]], rel=1e-5)
            assert copies in (int(rate), int(rate) + 1)
        shown = sum(found[row["id"]][0] * row["tokens"] for row in mine)
        # 2,000 documents at least, each off by a fraction of one copy: a standard deviation below 1.2 % of the target.
        assert shown == pytest.approx(ratio * available[topic], rel=0.04)


def test_the_same_in_any_number_of_shards_and_from_raw_scores(tmp_path: Path) -> None:
    rows = corpus(1_500)
    by_bucket = UpsampleStep(tokens="tokens")
    by_score = UpsampleStep(tokens="tokens", bucket=None, quality="quality")
    results = []
    for number, (config, shards) in enumerate([(by_bucket, 1), (by_bucket, 3), (by_score, 1), (by_score, 3)]):
        folder = tmp_path / str(number)
        folder.mkdir()
        results.append(run(rows, config, folder, shards))
    assert results[0] == results[1]
    assert results[2] == results[3]
    # 25 documents a bucket and topic, so the scores divide into the same buckets as the column names.
    assert [results[2][row["id"]][0] for row in rows] == [results[0][row["id"]][0] for row in rows]


def test_buckets_of_unequal_size_use_their_share_of_tokens(tmp_path: Path) -> None:
    """Two buckets with 3/4 and 1/4 of the tokens; nothing is discarded below 0.75, so the best takes all: 1 / 0.25."""
    rows = [{"id": str(n), "text": "x" * (6 if n < 50 else 2), "b": int(n >= 50)} for n in range(100)]
    config = UpsampleStep(topic=None, bucket="b", buckets=2, discard=0.8, max_rate=7, copies="times", bytes_per_token=1)
    found = run(rows, config, tmp_path, 1)
    assert {found[str(n)] for n in range(50)} == {(0, 0.0)}
    assert {found[str(n)] for n in range(50, 100)} == {(4, 4.0)}


def test_documents_without_a_rank_keep_one_copy_and_others_go_with_a_reason() -> None:
    rows = [{"text": "x", "topic": "a", "quality_bucket": bucket} for bucket in range(20)]
    rows += [{"text": "x", "topic": None, "quality_bucket": 3}, {"text": "x", "topic": "a", "quality_bucket": None}]
    table = apply(UpsampleStep(), rows)
    assert table.column("copies").to_pylist()[20:] == [1, 1]
    assert table.column("removed_by").to_pylist()[:8] == ["copies 0 < 1"] * 8
    assert table.column("copies").to_pylist()[19] in (5, 6)  # 5.76


def test_what_cannot_be_is_said() -> None:
    rows = [{"text": "x", "topic": "a", "quality_bucket": bucket} for bucket in range(20)]
    with pytest.raises(DataError, match="no document has the topic b"):
        apply(UpsampleStep(targets={"b": 5}), rows)
    with pytest.raises(DataError, match="topic a"):
        apply(UpsampleStep(ratio=5), rows)
    with pytest.raises(DataError, match="`quality_bucket` is 10, not one of 0 … 9"):
        apply(UpsampleStep(buckets=10), rows)
    with pytest.raises(ValueError, match="give `bucket`"):
        UpsampleStep(quality="q")
