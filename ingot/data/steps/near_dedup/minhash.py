"""MinHash: texts to sets of shingles, to signatures, to the keys of their bands.

A shingle is n words, characters or tokens in a row, as a 64-bit hash:

    words       of the normalised text (text/normalise.py: lower case, no punctuation, numbers as 0, no diacritics)
    characters  of the same normalised text, blanks included
    tokens      of a tokenizer, of the text as it is

    shingle of u_1 … u_n  =  finish(u_1 M^(n-1) + u_2 M^(n-2) + … + u_n  mod 2^64)        M odd; finish: see native.py

Scripts written without spaces (Han, kana, Thai, Lao, Burmese, Khmer) have a character for a word. A document shorter
than n is one shingle; one without any word has none, and no duplicate.

The signature (Broder 1997; Leskovec, Rajaraman and Ullman, chapter 3):

    x              lower 32 bits of a shingle's 64-bit hash
    h_k(x)         (a_k x + b_k) mod 2^32,  a_k odd                    k = 1 … bands · rows
    signature_k    min of h_k over the shingles of a document          P(two agree) = Jaccard similarity s
    a band         `rows` values; two documents agree in it with s^rows, in at least one with 1 - (1 - s^rows)^bands

Why 32 bits are enough. Each h_k is a permutation of the 32-bit words (a_k is odd), so that a shingle collides with
another only where their x are equal: among n shingles of a document that happens to n² / 2^33 pairs, 0.01 for 10,000
shingles, 1 for 100,000. That a false minimum is shared by two unlike documents of n shingles has probability about
n / 2^32 a value, and must happen `rows` times in a band. The compiler multiplies four (or eight) such words at once,
which it cannot do with 64-bit ones. Affine permutations are not min-wise independent for every set (Broder et al.
1998); on hashed x the deviation is too small to be seen: the tests compare the agreement with J, and the estimates with
datasketch's 61-bit family.

Invariants: two shingles with different elements share a hash with probability about 2^-64; the family of hashes has a fixed
seed, so that signatures mean the same in every run and on every machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from ingot.data.native import Bytes, Hashes, Offsets, Words, finish, join, kernel
from ingot.data.steps.near_dedup.options import NearDedupOptions
from ingot.data.text.characters import code_point, width
from ingot.data.text.normalise import normalise
from ingot.data.text.texts import Texts
from ingot.workspace.errors import DataError

BLANK = np.uint8(0x20)
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
WORD_START, WORD_PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)  # FNV-1a

BLOCK_BYTES = 4_000_000  # texts that are worked on together


@kernel
def without_spaces(point: int) -> bool:
    """Whether a character belongs to a script that puts no spaces between words."""
    if point < 0x3040:
        return 0x0E00 <= point < 0x0F00 or 0x1000 <= point < 0x10A0 or 0x1780 <= point < 0x1800
    return point < 0x3100 or 0x3400 <= point < 0xA000 or 0xF900 <= point < 0xFB00 or 0x20000 <= point < 0x40000


@kernel
def word_units(data: Bytes, offsets: Offsets, units: Hashes, counts: Offsets) -> int:
    """The hash of every word of every normalised text; the number of them."""
    count = 0
    for text in range(len(offsets) - 1):
        counts[text] = count
        at, stop = offsets[text], offsets[text + 1]
        value = WORD_START
        while at < stop:
            first = data[at]
            if first < 0x80:
                if first != BLANK:
                    value = (value ^ np.uint64(first)) * WORD_PRIME
                elif value != WORD_START:
                    units[count] = value
                    count += 1
                    value = WORD_START
                at += 1
                continue
            point = code_point(data, at)
            at += width(first)
            if without_spaces(point):
                if value != WORD_START:
                    units[count] = value
                    count += 1
                    value = WORD_START
                units[count] = (WORD_START ^ np.uint64(point)) * WORD_PRIME
                count += 1
            else:
                value = (value ^ np.uint64(point)) * WORD_PRIME
        if value != WORD_START:
            units[count] = value
            count += 1
    counts[len(offsets) - 1] = count
    return count


@kernel
def character_units(data: Bytes, offsets: Offsets, units: Hashes, counts: Offsets) -> int:
    """Every character of every text, mixed; the number of them."""
    count = 0
    for text in range(len(offsets) - 1):
        counts[text] = count
        at = offsets[text]
        while at < offsets[text + 1]:
            units[count] = finish(np.uint64(code_point(data, at)) + MULTIPLIER)
            count += 1
            at += width(data[at])
    counts[len(offsets) - 1] = count
    return count


@kernel
def windows(units: Hashes, offsets: Offsets, size: int, shingles: Hashes, counts: Offsets) -> int:
    """The hash of every `size` units in a row, in each text; the number of them. A shorter text is one window."""
    power = np.uint64(1)  # MULTIPLIER^size: what the unit that leaves the window has been multiplied with
    for _ in range(size):
        power *= MULTIPLIER
    count = 0
    for text in range(len(offsets) - 1):
        counts[text] = count
        start, stop = offsets[text], offsets[text + 1]
        value = np.uint64(0)
        for index in range(start, stop):
            value = value * MULTIPLIER + units[index]
            if index >= start + size:
                value -= units[index - size] * power
            if index >= start + size - 1:
                shingles[count] = finish(value)
                count += 1
        if start < stop < start + size:
            shingles[count] = finish(value)
            count += 1
    counts[len(offsets) - 1] = count
    return count


def blocks(texts: Texts) -> Iterator[tuple[int, int]]:
    """Ranges of texts of about `BLOCK_BYTES`, so that what is computed for them stays small."""
    first = 0
    while first < len(texts):
        last = int(np.searchsorted(texts.offsets, texts.offsets[first] + BLOCK_BYTES, "right")) - 1
        last = min(max(last, first + 1), len(texts))
        yield first, last
        first = last


def capped(texts: Texts, cap: int) -> Texts:
    """The beginning of every text: at most `cap` bytes, without a character that is cut in two."""
    parts = []
    for start, stop in pairwise(texts.offsets.tolist()):
        end = min(stop, start + cap)
        while end < stop and end > start and texts.data[end] & 0xC0 == 0x80:
            end -= 1
        parts.append(texts.data[start:end])
    offsets = np.concatenate([[0], np.cumsum([len(part) for part in parts])]).astype(np.int64)
    return Texts(np.concatenate(parts) if parts else texts.data, offsets)


def shingles_of(texts: Texts, step: NearDedupOptions) -> tuple[Hashes, Offsets]:
    """The shingles of all texts, end to end and with repeats, and where each text begins."""
    if step.text_cap is not None:
        texts = capped(texts, step.text_cap)
    if step.shingles == "tokens":
        assert step.tokenizer is not None
        units, counts = token_units(texts, step.tokenizer)
    else:
        alike = normalise(texts)
        units, counts = np.empty(alike.bytes, np.uint64), np.zeros(len(texts) + 1, np.int64)
        cut = word_units if step.shingles == "words" else character_units
        cut(alike.data, alike.offsets, units, counts)
    shingles, offsets = np.empty(int(counts[-1]), np.uint64), np.zeros(len(texts) + 1, np.int64)
    count = windows(units, counts, step.size, shingles, offsets)
    return shingles[:count], offsets


@cache
def _tokenizer(path: Path) -> Tokenizer:
    from tokenizers import Tokenizer

    if not path.is_file():
        raise DataError(
            "there is no such tokenizer", place=f"near_dedup: tokenizer: {path}", fix="name a tokenizer.json"
        )
    return Tokenizer.from_file(str(path))


def token_units(texts: Texts, tokenizer: Path) -> tuple[Hashes, Offsets]:
    """The tokens of every text, mixed."""
    encoded = _tokenizer(tokenizer).encode_batch_fast(
        [texts[row] for row in range(len(texts))], add_special_tokens=False
    )
    counts = np.concatenate([[0], np.cumsum([len(each.ids) for each in encoded])]).astype(np.int64)
    units = np.fromiter((token for each in encoded for token in each.ids), np.uint64, int(counts[-1]))
    return (units + np.uint64(1)) * MULTIPLIER, counts


def sorted_sets(shingles: Hashes, offsets: Offsets) -> list[Hashes]:
    """The set of each text's shingles, ascending."""
    return [sorted_set(shingles[start:stop]) for start, stop in pairwise(offsets.tolist())]


def sorted_set(shingles: Hashes) -> Hashes:
    """What np.unique gives, several times faster: it does not sort, and the sort is vectorised."""
    ordered = np.sort(shingles)
    new = np.ones(len(ordered), bool)
    new[1:] = ordered[1:] != ordered[:-1]
    return ordered[new]


FAMILY_SEED = 20231  # the hash family is part of the method, not of a run
LARGEST = np.uint32(0xFFFFFFFF)


def family(count: int) -> tuple[Words, Words]:
    """The first `count` pairs (a_k, b_k)."""
    drawn = np.random.default_rng(FAMILY_SEED).integers(0, 1 << 32, size=(count, 2), dtype=np.uint32)
    return np.ascontiguousarray(drawn[:, 0] | np.uint32(1)), np.ascontiguousarray(drawn[:, 1])


@kernel
def _minima(shingles: Hashes, offsets: Offsets, factors: Words, summands: Words, signatures: Words) -> None:
    count = len(factors)
    for text in range(len(offsets) - 1):
        smallest = signatures[text]
        for index in range(offsets[text], offsets[text + 1]):
            shingle = np.uint32(shingles[index])
            for k in range(count):  # the loop that the compiler makes vectors of
                smallest[k] = min(smallest[k], np.uint32(factors[k] * shingle + summands[k]))


def signatures_of(shingles: Hashes, offsets: Offsets, count: int) -> Words:
    """The signature of each set of shingles (repeats do no harm); an empty set has the largest possible values."""
    found = np.full((len(offsets) - 1, count), LARGEST, np.uint32)
    _minima(shingles, offsets, *family(count), found)
    return found


@kernel
def band_keys(signatures: Words, bands: int, rows: int) -> Hashes:
    """A 64-bit key for each document (rows of the result) and band; the band's number is part of it."""
    keys = np.empty((len(signatures), bands), np.uint64)
    for text in range(len(signatures)):
        for band in range(bands):
            value = np.uint64(band)
            for row in range(rows):
                value = join(value, np.uint64(signatures[text, band * rows + row]))
            keys[text, band] = finish(value)
    return keys
