"""Counts what repeats inside a text: lines and paragraphs seen before, and n-grams of words.

N-grams are found from the shorter to the longer ones. A text repeats an n-gram only where it repeats both (n-1)-grams
inside it, so each size looks only at the words that the size before has left, and an n-gram is known by the numbers of
these two: after the shortest ones, known by their words' hashes, no hash is needed, and few are left for long
n-grams in most texts.

Invariant: equal to counting with Python dictionaries (tests), except if two different words or lines of one text have
the same 64-bit hash.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ingot.data.native import PRIME_1, Hashes, Offsets, Sizes, inline, join, kernel
from ingot.data.text.spans import Spans


@inline
def _slots(count: int) -> int:
    """Size of a hash table for so many keys: a power of two, at most half full."""
    size = 8
    while size < 2 * count:
        size *= 2
    return size


@inline
def _entry(slots: Sizes, mask: int, keys: Hashes, entries: int, key: np.uint64) -> int:
    """The number of the key: a known one, or `entries` if it is new (which is then stored)."""
    at = int(np.int64((key * PRIME_1) >> np.uint64(32) & np.uint64(mask)))  # the upper half depends on every bit
    while True:
        entry = slots[at]
        if entry < 0:
            slots[at] = entries
            keys[entries] = key
            return entries
        if keys[entry] == key:
            return int(entry)
        at = (at + 1) & mask


@kernel
def _seen_before(
    hashes: Hashes, characters: Sizes, offsets: Offsets, counts: Offsets, lengths: Offsets, firsts_too: bool
) -> None:
    """For each text how many elements occur elsewhere before, and their characters (with the first ones, if asked)."""
    longest = 0
    for text in range(len(offsets) - 1):
        longest = max(longest, offsets[text + 1] - offsets[text])
    slots = np.empty(_slots(longest), np.int32)
    keys = np.empty(longest, np.uint64)
    first = np.empty(longest, np.int64)
    for text in range(len(offsets) - 1):
        size = _slots(offsets[text + 1] - offsets[text])
        for slot in range(size):
            slots[slot] = -1
        entries = 0
        for element in range(offsets[text], offsets[text + 1]):
            entry = _entry(slots, size - 1, keys, entries, hashes[element])
            if entry == entries:
                entries += 1
                first[entry] = element
                continue
            counts[text] += 1
            lengths[text] += characters[element]
            if firsts_too and first[entry] >= 0:
                counts[text] += 1
                lengths[text] += characters[first[entry]]
                first[entry] = -1


def seen_before(elements: Spans, *, firsts_too: bool = False) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each text: how many elements were seen before in it, and their characters.

    `firsts_too`: the first occurrence of what comes again counts as well.
    """
    counts, lengths = np.zeros(len(elements.offsets) - 1, np.int64), np.zeros(len(elements.offsets) - 1, np.int64)
    _seen_before(elements.hashes, elements.characters, elements.offsets, counts, lengths, firsts_too)
    return counts, lengths


@kernel
def _ngram_characters(
    hashes: Hashes,
    characters: Sizes,
    offsets: Offsets,
    shortest: int,
    longest: int,
    union: bool,
    top: Offsets,
    duplicate: Offsets,
) -> None:
    """Fill in top[text, n] and duplicate[text, n] for n from `shortest` to `longest`."""
    longest_text = 0
    for text in range(len(offsets) - 1):
        longest_text = max(longest_text, offsets[text + 1] - offsets[text])
    slots = np.empty(_slots(longest_text), np.int32)
    keys = np.empty(longest_text, np.uint64)
    counts = np.empty(longest_text, np.int32)
    begins = np.empty(longest_text, np.int32)  # where an entry occurs first
    numbers = np.empty(longest_text, np.uint64)  # of the n-gram that begins at a word
    firsts = np.empty(longest_text, np.int32)  # the words at which a repeated n-gram begins
    found = np.empty(longest_text, np.int32)
    before = np.empty(longest_text + 1, np.int64)  # characters of the words before a word
    for text in range(len(offsets) - 1):
        base = offsets[text]
        words = offsets[text + 1] - base
        before[0] = 0
        for word in range(words):
            before[word + 1] = before[word] + characters[base + word]
        left = max(words - shortest + 1, 0)
        for word in range(left):
            key = np.uint64(0)
            for part in range(base + word, base + word + shortest):
                key = join(key, hashes[part])
            numbers[word] = key
            firsts[word] = word
        for n in range(shortest, longest + 1):
            # Words where both shorter n-grams repeat, and the number of the n-gram there.
            size = _slots(left)
            for slot in range(size):
                slots[slot] = -1
            entries = stored = 0
            for index in range(left):
                first = firsts[index]
                key = numbers[first]
                if n > shortest:
                    if index + 1 == left or firsts[index + 1] != first + 1:
                        continue
                    key = key << np.uint64(32) | numbers[first + 1]
                entry = _entry(slots, size - 1, keys, entries, key)
                if entry == entries:
                    entries += 1
                    counts[entry] = 0
                    begins[entry] = first
                counts[entry] += 1
                found[stored] = entry
                firsts[stored] = first
                stored += 1
            # The most frequent one: the first among equals, or (as a union) the longest among equals.
            best = -1
            for entry in range(entries):
                if counts[entry] < 2:
                    continue
                if best < 0 or counts[entry] > counts[best]:
                    best = entry
                elif union and counts[entry] == counts[best]:
                    begin, other = begins[entry], begins[best]
                    if before[begin + n] - before[begin] > before[other + n] - before[other]:
                        best = entry
            if best >= 0 and not union:
                begin = begins[best]
                top[text, n] = (before[begin + n] - before[begin] + n - 1) * counts[best]
            elif not union and words >= n:
                top[text, n] = before[n] + n - 1  # nothing repeats: the first one, once
            # Characters of repeated n-grams; only the words where one begins are left for the next size.
            left = free = covered_top = covered = 0
            for index in range(stored):
                entry = found[index]
                if counts[entry] < 2:
                    continue
                first = firsts[index]
                firsts[left] = first
                numbers[first] = np.uint64(entry)
                left += 1
                if union:
                    duplicate[text, n] += before[first + n] - before[max(first, covered)]
                    covered = first + n
                    if entry == best:
                        top[text, n] += before[first + n] - before[max(first, covered_top)]
                        covered_top = first + n
                elif first >= free:
                    if begins[entry] >= 0:  # not stepped on yet
                        begins[entry] = -1
                    else:
                        duplicate[text, n] += before[first + n] - before[first]
                        free = first + n


def ngram_characters(
    words: Spans, longest: int, *, union: bool, shortest: int = 1
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """By text and n (columns 0 … longest): characters of the most frequent n-gram, and of n-grams that repeat.

    Nothing is counted for n below `shortest`.

    As datatrove counts: the most frequent n-gram is joined with spaces and counted length x occurrences (also if it
    occurs once); repeated ones are found from left to right, each occurrence after the first is counted without spaces
    and stepped over, and only n-grams that were stepped on are remembered.
    `union`, as datamap-rs counts: the characters of all words in any occurrence, each word once.
    """
    shape = (len(words.offsets) - 1, longest + 1)
    top, duplicate = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    _ngram_characters(words.hashes, words.characters, words.offsets, shortest, longest, union, top, duplicate)
    return top, duplicate
