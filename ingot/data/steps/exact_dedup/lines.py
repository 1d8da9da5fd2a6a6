"""Cuts paragraphs or lines that were seen before out of the texts: the first in the order of the documents stays.

    units (a task a shard)        paragraphs or lines of at least `min_bytes` -> hash, location, where in the text
    repeats (a task a partition)  every equal hash but the first
    columns (a task a shard)      the text without them; how many, which share, and where they stood

A unit is a paragraph or a line. One that stands twice in a shard is sent on once: its second occurrence goes whatever the
other shards hold. A paragraph ends at an empty line. A unit is cut out together with the line breaks after it.

Invariant: of all equal units exactly one stays; what is shorter than `min_bytes` is untouched, byte for byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow
from numpy.typing import NDArray

from ingot.data.engine.exchange import (
    RECORDS,
    Partition,
    ShardPartition,
    partition_by_hash,
    partitions,
    partitions_for,
    rows_of,
    shard_partitions,
    write_partitioned,
)
from ingot.data.engine.shard import COLUMNS, Shard, write_columns
from ingot.data.engine.work import Work
from ingot.data.native import Bytes, Offsets, load_8, loop
from ingot.data.outside import read_step
from ingot.data.step import Rule, numbers
from ingot.data.steps.exact_dedup.options import ExactDedupOptions
from ingot.data.text.hashing import first_equal, hash_spans
from ingot.data.text.texts import Texts

LOCATED = [
    ("location", "<i8"),
    ("start", "<u4"),
    ("stop", "<u4"),
]  # bytes [start, stop) of the text, line breaks included
UNIT = np.dtype([*LOCATED, ("high", "<u8"), ("low", "<u8")])
REPEAT = np.dtype(LOCATED)

NEWLINE = np.uint8(10)
ONES = np.uint64(0x0101010101010101)
NEWLINES = np.uint64(10) * ONES
BLANK = np.uint8(32)  # no larger byte is white space in ASCII


def annotate(step: ExactDedupOptions, shards: Sequence[Shard], work: Work) -> list[Path]:
    """For each shard a file with the columns."""
    # A record is as large as a line of 32 bytes, and shorter lines are left alone by default.
    count = partitions_for(sum(shard.bytes for shard in shards))
    options = step.task_options() | {"partitions": count}
    units = work.run("exact_units", hash_units, shards, options)
    repeats = work.run("exact_repeats", find_repeats, partitions(units, count, shards))
    outputs = shard_partitions(repeats, shards, [done.file("repeats.npy") for done in units])
    return [done.file(COLUMNS) for done in work.run("exact_cuts", cut_repeats, outputs)]


def decide(step: ExactDedupOptions, columns: pyarrow.Table) -> list[Rule]:
    """A document that loses too much goes whole."""
    share = numbers(columns, "repeated_share")
    broken = (share > step.max_removed) | (share >= 1)
    spans: list[list[tuple[int, int]]] = [[] for _ in broken]
    for row in np.flatnonzero(broken).tolist():
        flat = columns.column("_repeated_spans")[row].as_py()
        spans[row] = list(zip(flat[::2], flat[1::2], strict=True))
    limit = f"> {step.max_removed:g}" if step.max_removed < 1 else "(nothing is left)"
    return [Rule(f"share of repeated {step.scope}s", broken, share, limit, spans=spans)]


@loop
def after_newline(data: Bytes, at: int, end: int) -> int:
    """The byte after the next line break, or `end`: eight bytes at a time (a byte of the word becomes zero)."""
    while at + 8 <= end:
        word = load_8(data, at) ^ NEWLINES
        if (word - ONES) & ~word & (ONES << np.uint64(7)):
            break
        at += 8
    while at < end and data[at] != NEWLINE:
        at += 1
    return min(at + 1, end)


@loop
def find_units(
    data: Bytes,
    offsets: Offsets,
    paragraphs: bool,
    minimum: int,
    rows: Offsets,
    starts: Offsets,
    stops: Offsets,
    firsts: Offsets,
    lasts: Offsets,
) -> int:
    """Find units of at least `minimum` bytes; the number of them.

    A unit is [start, stop) with the line breaks after it and [first, last) without outer white space.
    """
    count = 0
    for row in range(len(offsets) - 1):
        at, end = offsets[row], offsets[row + 1]
        while at < end:
            start = at
            while at < end:  # to the end of the unit: the first byte of the next
                at = after_newline(data, at, end)
                if not paragraphs:
                    break
                ahead, next_start = at, at
                while ahead < end and data[ahead] <= BLANK:
                    ahead += 1
                    if data[ahead - 1] == NEWLINE:
                        next_start = ahead
                if next_start > at:
                    at = next_start
                    break
            first, last = start, at
            while first < last and data[first] <= BLANK:
                first += 1
            while last > first and data[last - 1] <= BLANK:
                last -= 1
            if last - first >= minimum:
                rows[count], starts[count], stops[count] = row, start, at
                firsts[count], lasts[count] = first, last
                count += 1
    return count


@loop
def append(left: Bytes, size: int, data: Bytes, start: int, stop: int) -> int:
    """Copy the bytes [start, stop) to the end of `left`; gives its new end."""
    target, source = left[size : size + stop - start], data[start:stop]
    for index in range(len(source)):  # in this form the compiler calls memcpy
        target[index] = source[index]
    return size + len(source)


@loop
def characters_in(data: Bytes, start: int, stop: int) -> int:
    """How many characters begin in [start, stop)."""
    at, count = start, 0
    while at < stop:
        if at + 8 <= stop and not load_8(data, at) & (ONES << np.uint64(7)):  # eight ASCII characters
            count += 8
            at += 8
        else:
            count += (data[at] & 0xC0) != 0x80
            at += 1
    return count


@loop
def cut_out(
    data: Bytes,
    offsets: Offsets,
    rows: Offsets,
    starts: Offsets,
    stops: Offsets,
    left: Bytes,
    left_offsets: Offsets,
    spans: NDArray[np.int32],
) -> int:
    """Copy the texts without the bytes [start, stop) of their row; fill in the same spans in characters of the text."""
    size, span = 0, 0
    for row in range(len(offsets) - 1):
        left_offsets[row] = size
        at, end = offsets[row], offsets[row + 1]
        characters, touched = 0, False
        while span < len(rows) and rows[span] == row:
            start, stop = offsets[row] + starts[span], offsets[row] + stops[span]
            size = append(left, size, data, at, start)
            characters += characters_in(data, at, start)
            spans[2 * span] = characters
            characters += characters_in(data, start, stop)
            spans[2 * span + 1] = characters
            at, touched = stop, True
            span += 1
        ends_cut = touched and at == end
        size = append(left, size, data, at, end)
        if ends_cut:  # what stood before the last unit should not end in the breaks that led to it
            while size > left_offsets[row] and left[size - 1] <= BLANK:
                size -= 1
    left_offsets[len(offsets) - 1] = size
    return size


def units_of(texts: Texts, *, paragraphs: bool, minimum: int) -> tuple[Offsets, ...]:
    """Row, start, stop, first and last (bytes of `texts.data`) of every unit of at least `minimum` bytes."""
    most = texts.bytes // minimum + 1
    columns = tuple(np.empty(most, np.int64) for _ in range(5))
    count = find_units(texts.data, texts.offsets, paragraphs, minimum, *columns)
    return tuple(column[:count] for column in columns)


def hash_units(folder: Path, shard: Shard, options: dict[str, Any]) -> dict[str, Any]:
    """Hash the units of a shard; the first of each kind goes into the exchange, the others are repeats already."""
    config = cast(ExactDedupOptions, read_step(options["config"]))
    texts = Texts.of(shard.read(["text"]).column("text"))
    rows, starts, stops, firsts, lasts = units_of(
        texts, paragraphs=config.scope == "paragraph", minimum=config.min_bytes
    )
    high, low = hash_spans(texts.data, firsts, lasts, exact=config.compare == "exact")
    is_first = first_equal(high, low) == np.arange(len(rows))
    where = shard.locations()[rows], starts - texts.offsets[rows], stops - texts.offsets[rows]
    np.save(folder / "repeats.npy", filled(REPEAT, *(column[~is_first] for column in where)))
    records = filled(UNIT, *(column[is_first] for column in (*where, high, low)))
    partitions = partition_by_hash(records["high"], options["partitions"])
    write_partitioned(folder / RECORDS, records, partitions, options["partitions"])
    return {"units": len(rows), "repeated_in_shard": int((~is_first).sum())}


def filled(dtype: np.dtype[np.void], *columns: NDArray[Any]) -> NDArray[np.void]:
    """Records from columns, in the order of the fields."""
    assert dtype.names is not None
    records = np.empty(len(columns[0]), dtype)
    for name, column in zip(dtype.names, columns, strict=True):
        records[name] = column
    return records


def find_repeats(folder: Path, part: Partition, options: None) -> dict[str, Any]:
    """Every unit of a partition that is not the first of its kind."""
    records = part.read(UNIT)  # in the order of the shards, so that the first to come is the first document
    first = first_equal(np.ascontiguousarray(records["high"]), np.ascontiguousarray(records["low"]))
    later = first != np.arange(len(records))
    repeats = filled(REPEAT, *(records[name][later] for name in ("location", "start", "stop")))
    part.send_back(folder, repeats)
    return {"repeated_between_shards": len(repeats)}


def cut_repeats(folder: Path, output: ShardPartition, options: None) -> dict[str, Any]:
    """The texts of a shard without repeated units."""
    shard = output.shard
    repeats = np.concatenate([np.load(output.part.also[0]), output.part.read(REPEAT)])
    order = np.argsort(
        repeats["location"] << 32 | repeats["start"], kind="stable"
    )  # by row and start: all are of one shard
    repeats = repeats[order]
    texts = Texts.of(shard.read(["text"]).column("text"))
    rows = rows_of(repeats["location"], shard)
    left, left_offsets = np.empty(texts.bytes, np.uint8), np.empty(len(texts) + 1, np.int64)
    spans = np.empty(2 * len(repeats), np.int32)
    starts, stops = repeats["start"].astype(np.int64), repeats["stop"].astype(np.int64)
    size = cut_out(texts.data, texts.offsets, rows, starts, stops, left, left_offsets, spans)
    counts = np.bincount(rows, minlength=len(texts))
    span_offsets = np.concatenate([[0], np.cumsum(2 * counts)]).astype(np.int32)
    before, after = np.diff(texts.offsets), np.diff(left_offsets)
    columns = {
        "text": Texts(left[:size], left_offsets).column(),
        "repeated_count": pyarrow.array(counts.astype(np.int32)),
        "repeated_share": pyarrow.array(np.where(counts > 0, 1 - after / np.maximum(before, 1), 0).astype(np.float32)),
        "_repeated_spans": pyarrow.ListArray.from_arrays(pyarrow.array(span_offsets), pyarrow.array(spans)),
    }
    write_columns(folder / COLUMNS, columns, compress_text=False)
    return {"repeated": len(repeats), "bytes_before": int(before.sum()), "bytes_after": int(after.sum())}
