"""Shuffles the documents of a source over all files, by a hash of the id, the copy and the seed.

Why: the loader already shows a source's windows in the order of a permutation (windows.py), so no two windows of a long
document follow one another. But a window of several short documents holds neighbours, and neighbours in a file are related:
the pages of a site, the chapters of a book, the copies of an upsampled document. Sorted by a hash, they are not.

Memory is bounded: each part of the corpus is sorted by itself; then one range of hashes after the other is taken from all
parts and sorted together, as in any external sort.

Invariant: the order depends on the ids, the copies and the seed only; not on files, their order, or the number of workers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingot.data.native import loop
from ingot.tokens.documents import id_hashes

RANGE_BYTES = 32_000_000  # of tokens that are sorted at once
TOKENS_FILE, ENTRIES_FILE, ROUTES_FILE = "tokens.bin", "entries.npy", "routes.npy"
ENTRY = np.dtype([("key", "<u8"), ("start", "<i8"), ("tokens", "<i8"), ("bytes", "<i8"), ("quality", "<f4")])


def order_keys(hashes: NDArray[np.uint64], copies: NDArray[np.int64], seed: int) -> NDArray[np.uint64]:
    """The number that each copy of each document is sorted by (the finaliser of splitmix64 mixes the three)."""
    salt = id_hashes([str(seed)], "order")[0]
    value = (hashes ^ salt) + copies.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@loop
def gather(tokens: np.ndarray, starts: np.ndarray, counts: np.ndarray, out: np.ndarray) -> None:
    """Copy stretches of tokens, one after the other."""
    at = 0
    for number in range(len(starts)):
        source = tokens[starts[number] : starts[number] + counts[number]]
        target = out[at : at + counts[number]]
        for offset in range(len(source)):  # in this form the compiler calls memcpy
            target[offset] = source[offset]
        at += counts[number]


@dataclass(frozen=True)
class Entries:
    """Documents (each copy an entry of its own), their tokens, and which sources take them."""

    tokens: NDArray[Any]
    entries: NDArray[np.void]
    routes: NDArray[np.bool_]

    def chosen(self, rows: NDArray[Any]) -> Entries:
        """These rows, in this order, with their tokens end to end."""
        entries = self.entries[rows]
        out = np.empty(int(entries["tokens"].sum()), self.tokens.dtype)
        gather(self.tokens, np.ascontiguousarray(entries["start"]), np.ascontiguousarray(entries["tokens"]), out)
        lengths: NDArray[np.int64] = entries["tokens"]
        entries["start"] = np.cumsum(lengths) - lengths
        return Entries(out, entries, self.routes[rows])

    def in_order(self) -> Entries:
        """Sorted by key."""
        return self.chosen(np.argsort(self.entries["key"], kind="stable"))

    def save(self, folder: Path) -> None:
        """Write the three files of a part."""
        self.tokens.tofile(folder / TOKENS_FILE)
        np.save(folder / ENTRIES_FILE, self.entries)
        np.save(folder / ROUTES_FILE, self.routes)


@dataclass(frozen=True)
class StoredEntries:
    """What `save` wrote, sorted by key. Files are open only while something is read: there may be thousands of parts."""

    folder: Path
    dtype: str

    @property
    def bytes(self) -> int:
        """Size of its tokens."""
        return (self.folder / TOKENS_FILE).stat().st_size

    def between(self, low: int, high: int) -> Entries:
        """The documents whose keys are in [low, high)."""
        stored = np.load(self.folder / ENTRIES_FILE, mmap_mode="r")
        first = int(np.searchsorted(stored["key"], np.uint64(low)))
        last = len(stored) if high >= 1 << 64 else int(np.searchsorted(stored["key"], np.uint64(high)))
        entries = np.array(stored[first:last])
        routes = np.array(np.load(self.folder / ROUTES_FILE, mmap_mode="r")[first:last])
        start = int(entries["start"][0]) if len(entries) else 0
        count = int(entries["tokens"].sum())
        offset = start * np.dtype(self.dtype).itemsize
        tokens = np.fromfile(self.folder / TOKENS_FILE, self.dtype, count, offset=offset)
        entries["start"] -= start
        return Entries(tokens, entries, routes)


def joined(batches: Sequence[Entries]) -> Entries:
    """The documents of all batches, one batch after the other."""
    entries = np.concatenate([batch.entries for batch in batches])
    sizes = [len(batch.tokens) for batch in batches]
    entries["start"] += np.repeat(np.cumsum(sizes) - sizes, [len(batch.entries) for batch in batches])
    tokens = np.concatenate([batch.tokens for batch in batches])
    return Entries(tokens, entries, np.concatenate([batch.routes for batch in batches]))


def merged(parts: Sequence[StoredEntries], range_bytes: int = RANGE_BYTES) -> Iterator[Entries]:
    """The documents of all sorted parts in one order, range after range."""
    count = max(1, -(-sum(part.bytes for part in parts) // range_bytes))
    bounds = [(number << 64) // count for number in range(count)] + [1 << 64]
    for low, high in pairwise(bounds):
        yield joined([part.between(low, high) for part in parts]).in_order()
