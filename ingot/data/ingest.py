"""Turns sources into shards: plan what is read within the budget, read it in tasks, number the shards.

A read task turns one split into `base-N.parquet` files of about `shard_bytes` of text each. Sizes are powers of two of
2 MB, chosen so that even a small corpus makes enough shards for all processors; they depend on the amount of text only.

Invariant: shards are numbered in the order of the sources and of their splits.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.compute

from ingot.data.columns import SIZES
from ingot.data.config import CurateConfig
from ingot.data.engine.shard import Shard, write_columns, write_ids
from ingot.data.engine.store import FinishedTask
from ingot.data.engine.work import Work
from ingot.data.funnel import Funnel, FunnelRow
from ingot.data.read.config import SourceConfig
from ingot.data.read.plan import SourceSplits, pieces_of, plan
from ingot.data.read.problem import ORDINARY, ReadProblems
from ingot.data.read.read import read_split
from ingot.data.read.split import Split
from ingot.data.steps.extract_html import HTML_TYPES
from ingot.workspace.config import content_hash
from ingot.workspace.files import read_jsonl, write_jsonl
from ingot.workspace.progress import Progress

LARGEST_SHARD = 4_000_000  # a task holds some twenty times that, whatever the size of the corpus
SMALLEST_SHARD = 2_000_000
WANTED_SHARDS = 32
PROBLEMS = "problems.jsonl"
NAMED_PROBLEMS = 5  # that are named on the screen; all are counted, samples are in problems.jsonl
VERSION = 4  # raise it when a read task's result for a split changes


@dataclass(frozen=True)
class SplitReading:
    """A split of a source, to be read by one task."""

    key: str
    split: Split
    source: SourceConfig

    @property
    def bytes(self) -> int:
        return self.split.bytes


@dataclass(frozen=True)
class Sources:
    """What is to be read: a plan for each source, the size of shards, and how long it took to find out."""

    plans: tuple[SourceSplits, ...]
    shard_bytes: int
    seconds: float

    @property
    def bytes(self) -> int:
        """Bytes of text to expect."""
        return sum(plan.bytes_taken for plan in self.plans)


def plan_sources(config: CurateConfig) -> Sources:
    """Find the files of every source; with a budget, each source in turn gets an equal share of what is left."""
    began = time.monotonic()
    total = config.max_bytes
    if total is None:
        total = sum(piece.size for source in config.sources for piece in pieces_of(source, LARGEST_SHARD))
    shard_bytes = SMALLEST_SHARD
    while shard_bytes < LARGEST_SHARD and shard_bytes * WANTED_SHARDS < total:
        shard_bytes = min(2 * shard_bytes, LARGEST_SHARD)
    plans = []
    left = config.max_bytes
    for number, source in enumerate(config.sources):
        share = None if left is None else left // (len(config.sources) - number)
        plans.append(plan(source, share, shard_bytes))
        left = None if left is None else max(0, left - plans[-1].bytes_taken)
    return Sources(tuple(plans), shard_bytes, time.monotonic() - began)


def ingest(config: CurateConfig, sources: Sources, work: Work, funnel: Funnel) -> tuple[list[Shard], int]:
    """The shards of all sources, and how many of their documents are HTML; the funnel gets the rows `select`, `read`."""
    others = [
        (f"{each.kind} is not read ({each.bytes:,} bytes), as {source.name}:{each.example}", each)
        for source, plan in zip(config.sources, sources.plans, strict=True)
        for each in plan.unread
    ]
    for reason, each in others:
        work.progress.say(f"{each.files:,} x {reason}")
    files = sum(plan.files for plan in sources.plans)
    left_out = sum(plan.files_left_out for plan in sources.plans)
    reasons = {"budget": left_out} if left_out else {}
    reasons |= {reason: each.files for reason, each in others}
    found = (
        files + sum(each.files for _, each in others),
        sum(plan.bytes for plan in sources.plans) + sum(each.bytes for _, each in others),
    )
    taken = (files - left_out, sources.bytes)
    funnel.add(FunnelRow("select", found, taken, sources.seconds, reasons))

    before = work.seconds
    items = [
        SplitReading(content_hash([split.key, source.model_dump(mode="json")], 24), split, source)
        for source, plan in zip(config.sources, sources.plans, strict=True)
        for split in plan.splits
    ]
    done = work.run("read", read_shards, items, {"shard_bytes": sources.shard_bytes}, version=VERSION)
    shards = number_shards(done)
    dropped = sum((Counter(task.report["dropped"]) for task in done), Counter[str]())
    repaired = sum((Counter(task.report["repaired"]) for task in done), Counter[str]())
    after = (sum(shard.rows for shard in shards), sum(shard.bytes for shard in shards))
    funnel.add(FunnelRow("read", taken, after, work.seconds - before, dict(dropped), repaired=dict(repaired)))
    funnel.problems = [row for task in done for row in read_jsonl(task.file(PROBLEMS))]
    name_problems(funnel, dropped, work.progress)
    return shards, sum(task.report["pages"] for task in done)


def read_shards(folder: Path, item: SplitReading, options: dict[str, int]) -> dict[str, Any]:
    """Read a split into the base files of shards."""
    problems = ReadProblems(stop=item.source.on_damage == "stop")
    parts = []
    pages = 0
    filled: set[str] = set()
    for number, table in enumerate(regrouped(read_split(item.split, item.source, problems), options["shard_bytes"])):
        table = with_sizes(table)
        path = folder / f"base-{number:05d}.parquet"
        write_columns(path, {name: table.column(name) for name in table.column_names})
        write_ids(path, table.column("id").combine_chunks())
        filled |= {name for name in table.column_names if table.column(name).null_count < len(table)}
        pages += count_html(table)
        parts.append({"file": path.name, "rows": len(table), "bytes": sum_of(table)})
    write_jsonl(folder / PROBLEMS, [asdict(problem) | {"source": item.source.name} for problem in problems.samples])
    return {
        "parts": parts,
        "columns": sorted(filled),
        "pages": pages,
        "dropped": dict(sorted(problems.dropped.items())),
        "repaired": dict(sorted(problems.repaired.items())),
    }


def regrouped(tables: Iterator[pyarrow.Table], size: int) -> Iterator[pyarrow.Table]:
    """Tables put together until their texts reach `size` bytes."""
    waiting: list[pyarrow.Table] = []
    total = 0
    for table in tables:
        waiting.append(table)
        total += table.column("text").nbytes
        if total >= size:
            yield pyarrow.concat_tables(waiting).combine_chunks()
            waiting, total = [], 0
    if sum(map(len, waiting)):
        yield pyarrow.concat_tables(waiting).combine_chunks()


def with_sizes(table: pyarrow.Table) -> pyarrow.Table:
    """The table with the bytes of each text."""
    return table.append_column(SIZES, pyarrow.compute.binary_length(table.column("text")).cast(pyarrow.int64()))


def count_html(table: pyarrow.Table) -> int:
    """How many of the documents are HTML as it was sent."""
    pages = pyarrow.compute.is_in(table.column("mime"), value_set=pyarrow.array(HTML_TYPES))
    return int(pyarrow.compute.sum(pages).as_py() or 0)


def sum_of(table: pyarrow.Table) -> int:
    """Bytes of all texts."""
    return int(pyarrow.compute.sum(table.column(SIZES)).as_py() or 0)


def number_shards(done: Sequence[FinishedTask]) -> list[Shard]:
    """The shards that the read tasks made."""
    shards: list[Shard] = []
    for task in done:
        for part in task.report["parts"]:
            key = content_hash([task.key, part["file"]], 24)
            shards.append(Shard(len(shards), key, task.file(part["file"]), part["rows"], part["bytes"]))
    return shards


def name_problems(funnel: Funnel, dropped: Counter[str], progress: Progress) -> None:
    """Tell the person what could not be read."""
    broken = [row for row in funnel.problems if row["rule"] not in ORDINARY and not row["kept"]]
    for row in broken[:NAMED_PROBLEMS]:
        progress.say(f"not read: {row['place']}: {row['rule']} {row['detail']}".rstrip())
    more = sum(count for rule, count in dropped.items() if rule not in ORDINARY) - min(len(broken), NAMED_PROBLEMS)
    if more > 0:
        progress.say(f"not read: {more:,} more, see funnel.json and {PROBLEMS}")
