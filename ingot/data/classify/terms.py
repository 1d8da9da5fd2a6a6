"""Counts the terms of lists in texts: every term of every list in one pass.

A term is one or more words; words are runs of \\w in lower case, so that case and punctuation do not matter. A term is
known by a 64-bit hash of its words in a row. A list of such hashes can be published without its words; this hides them
from a reader, not from a search through a dictionary.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow
import pyarrow.compute

from ingot.data.native import Bytes, Hashes, Offsets, hash_span, join, kernel
from ingot.data.text.characters import WORD, character_flags, code_point, width
from ingot.data.text.texts import Texts

SEED = np.uint64(0x7E57)
MAX_WORDS = 16


@kernel
def next_span(data: Bytes, at: int, end: int, flags: Bytes) -> tuple[int, int]:
    """Where the next word begins and ends; an empty span is the end of the text."""
    while at < end and not flags[code_point(data, at)] & WORD:
        at += width(data[at])
    first = at
    while at < end and flags[code_point(data, at)] & WORD:
        at += width(data[at])
    return first, at


@kernel
def count_hits(
    data: Bytes, offsets: Offsets, flags: Bytes, keys: Hashes, owners: Offsets, longest: int, counts: Offsets
) -> None:
    """Hits by text and list. `keys` are sorted; `owners` are the lists that have the key, as bits."""
    recent = np.zeros(MAX_WORDS, np.uint64)  # hashes of the last 1, 2, … words
    for text in range(len(offsets) - 1):
        at, end, read = offsets[text], offsets[text + 1], 0
        while at < end:
            first, at = next_span(data, at, end, flags)
            if first == at:
                break
            word = hash_span(data, first, at, SEED)
            for size in range(min(read, longest - 1), 0, -1):
                recent[size] = join(recent[size - 1], word)
            recent[0] = word
            read += 1
            for size in range(min(read, longest)):
                index = np.searchsorted(keys, recent[size])
                if index < len(keys) and keys[index] == recent[size]:
                    for owner in range(counts.shape[1]):
                        counts[text, owner] += (owners[index] >> owner) & 1


@kernel
def last_hashes(data: Bytes, offsets: Offsets, flags: Bytes, found: Hashes) -> None:
    """The hash of all words of each text in a row: that of a term, and 0 if it has no word."""
    for text in range(len(offsets) - 1):
        at, end, words = offsets[text], offsets[text + 1], 0
        while at < end:
            first, at = next_span(data, at, end, flags)
            if first < at:
                word = hash_span(data, first, at, SEED)
                found[text] = join(found[text], word) if words else word
                words += 1


def lower(texts: pyarrow.Array | pyarrow.ChunkedArray) -> Texts:
    """A column in lower case."""
    return Texts.of(pyarrow.compute.utf8_lower(texts.cast(pyarrow.large_string())))


def term_hashes(terms: Iterable[str]) -> Hashes:
    """The hash of every term."""
    texts = lower(pyarrow.array(list(terms), pyarrow.large_string()))
    found = np.zeros(len(texts), np.uint64)
    last_hashes(texts.data, texts.offsets, character_flags(), found)
    return found


def count_terms(texts: pyarrow.Array | pyarrow.ChunkedArray, lists: list[Hashes], longest: int) -> Offsets:
    """By text and list, how often a term of the list occurs."""
    keys, inverse = np.unique(np.concatenate([np.zeros(0, np.uint64), *lists]), return_inverse=True)
    owners = np.zeros(len(keys), np.int64)
    bits = np.concatenate(
        [np.zeros(0, np.int64), *(np.full(len(one), 1 << number) for number, one in enumerate(lists))]
    )
    np.bitwise_or.at(owners, inverse, bits.astype(np.int64))
    lowered = lower(texts)
    counts = np.zeros((len(lowered), len(lists)), np.int64)
    if len(keys):
        count_hits(lowered.data, lowered.offsets, character_flags(), keys, owners, longest, counts)
    return counts
