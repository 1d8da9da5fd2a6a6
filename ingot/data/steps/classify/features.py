"""The features of fastText's classifiers: words, word n-grams and character n-grams of a text, as numbers of rows.

Hashes are fastText's, quirks and all, so that its models can be scored here: FNV-1a over signed bytes, which carry their
sign into 32 bits; word n-grams are combined in 64 bits from sign-extended 32-bit hashes. Words that begin with
`__label__` are labels and no features, an actual `</s>` in the text ends it.

Rows of the vocabulary come first, then those of the buckets that n-grams are hashed into.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ingot.data.native import Bytes, Hashes, Offsets, Sizes, hash_span, kernel

LABEL_PREFIX = b"__label__"
END = b"</s>"
FNV_START, FNV_PRIME = np.uint32(2166136261), np.uint32(16777619)
NGRAM_PRIME = np.uint64(116049371)
OPEN, CLOSE = np.uint8(60), np.uint8(62)  # < and > around a word
MAX_WORD_NGRAMS = 16
CHUNK = 1024  # letters of a word that are looked at together: bounds memory in texts without blanks
MEMO_WORDS = 1 << 15
MEMO_SEED = np.uint64(1)


def _hash(word: bytes) -> np.uint32:
    """FNV-1a of ASCII bytes."""
    value = int(FNV_START)
    for byte in word:
        value = (value ^ byte) * int(FNV_PRIME) % 2**32
    return np.uint32(value)


END_WORD, END_HASH = np.frombuffer(END, np.uint8), _hash(END)
LABEL_HASH = _hash(LABEL_PREFIX)


@kernel
def extend(value: np.uint32, byte: np.uint8) -> np.uint32:
    """FNV-1a, one byte further; a byte above 127 is negative and sets the upper bits, as in fastText."""
    return np.uint32((value ^ np.uint32(np.int8(byte))) * FNV_PRIME)


@kernel
def hash_of(data: Bytes, start: int, end: int) -> np.uint32:
    """fastText's hash of a word."""
    value = FNV_START
    for at in range(start, end):
        value = extend(value, data[at])
    return value


@kernel
def fill_slots(words: Bytes, offsets: Offsets, slots: Sizes) -> None:
    """An open-addressed table of the vocabulary; its size is a power of two."""
    mask = len(slots) - 1
    for word in range(len(offsets) - 1):
        slot = np.int64(hash_of(words, offsets[word], offsets[word + 1])) & mask
        while slots[slot] >= 0:
            slot = (slot + 1) & mask
        slots[slot] = word


@kernel
def find_word(data: Bytes, start: int, end: int, value: np.uint32, words: Bytes, offsets: Offsets, slots: Sizes) -> int:
    """The number of the word data[start:end] in the vocabulary, or -1."""
    mask = len(slots) - 1
    slot = np.int64(value) & mask
    while slots[slot] >= 0:
        word = np.int64(slots[slot])
        first = offsets[word]
        if offsets[word + 1] - first == end - start:
            same = True
            for at in range(end - start):
                if words[first + at] != data[start + at]:
                    same = False
                    break
            if same:
                return int(word)
        slot = (slot + 1) & mask
    return -1


@kernel
def append_bucket(bucket: int, known: int, bucket_rows: Sizes, marks: Bytes, ids: Sizes, count: int) -> int:
    """Append the row of a bucket, behind the `known` words; a pruned model may not have it. Returns the new count.

    `marks` has a bit for each bucket that has a row and stays in the cache; `bucket_rows` (megabytes) is read on a hit only.
    """
    if len(marks) == 0:
        ids[count] = known + bucket
        return count + 1
    if marks[bucket >> 3] & np.uint8(1 << (bucket & 7)):
        ids[count] = known + bucket_rows[bucket]
        return count + 1
    return count


@kernel
def is_blank(byte: np.uint8) -> bool:
    """What ends a word: blank, tab, newline, vertical tab, form feed, carriage return, NUL."""
    return bool(byte == 32 or (9 <= byte <= 13) or byte == 0)


@kernel
def next_word(data: Bytes, at: int, end: int) -> tuple[int, int, np.uint32]:
    """The next word: where it begins and ends, and its hash; an empty one is the end of the text."""
    while True:
        while at < end and is_blank(data[at]):
            at += 1
        first = at
        value = FNV_START
        while at < end and not is_blank(data[at]):
            value = extend(value, data[at])
            at += 1
        if value == END_HASH and at - first == 4:
            return end, end, END_HASH
        if first == at:
            return end, end, END_HASH
        if data[first] == 95 and at - first >= len(LABEL_PREFIX) and hash_of(data, first, first + 9) == LABEL_HASH:
            continue
        return first, at, value


@kernel
def next_number(
    data: Bytes, at: int, end: int, words: Bytes, offsets: Offsets, slots: Sizes
) -> tuple[int, int, np.uint32, int]:
    """The next word as `next_word` gives it, and its number; an empty one has the number of the word that ends a text."""
    first, at, value = next_word(data, at, end)
    if first == at:
        return first, at, value, find_word(END_WORD, 0, 4, value, words, offsets, slots)
    return first, at, value, find_word(data, first, at, value, words, offsets, slots)


@kernel
def subword_rows(
    data: Bytes,
    first: int,
    last: int,
    begin: int,
    stop: int,
    known: int,
    sizes: tuple[int, int, int, int],
    bucket_rows: Sizes,
    marks: Bytes,
    letters: Bytes,
    ids: Sizes,
) -> int:
    """The rows of the character n-grams of <data[first:last]> that begin in [begin, stop); returns how many.

    The bytes are copied to `letters` first: a loop that asks at each of them whether it is < or > is half as fast.
    """
    _, least, most, buckets = sizes
    inverse, unpruned = 1.0 / buckets, len(marks) == 0
    end = min(stop + 4 * most, last + 1)
    for at in range(begin, end):
        letters[at - begin] = OPEN if at < first else (CLOSE if at == last else data[at])
    size, word_end = end - begin, last + 1 - begin
    count = 0
    for start in range(stop - begin):
        if letters[start] & np.uint8(0xC0) == np.uint8(0x80):
            continue
        ngram = FNV_START
        stop_at = start
        for length in range(1, most + 1):
            if stop_at >= size:
                break
            ngram = extend(ngram, letters[stop_at])
            stop_at += 1
            while stop_at < size and letters[stop_at] & np.uint8(0xC0) == np.uint8(0x80):
                ngram = extend(ngram, letters[stop_at])
                stop_at += 1
            if length >= least and not (length == 1 and (begin + start < first or stop_at == word_end)):
                # `ngram % buckets` without a division, then `append_bucket`: written out, this loop is three times as fast.
                bucket = np.int64(ngram) - np.int64(np.uint32(np.float64(ngram) * inverse)) * np.int64(buckets)
                if bucket < 0:
                    bucket += buckets
                if bucket >= buckets:
                    bucket -= buckets
                if unpruned:
                    ids[count] = known + bucket
                    count += 1
                elif marks[np.uint64(bucket) >> np.uint64(3)] & np.uint8(1 << (bucket & 7)):
                    ids[count] = known + bucket_rows[bucket]
                    count += 1
    return count


@kernel
def ngram_rows(
    recent: Hashes,
    read: int,
    value: np.uint32,
    known: int,
    sizes: tuple[int, int, int, int],
    bucket_rows: Sizes,
    marks: Bytes,
    ids: Sizes,
) -> int:
    """The rows of the word n-grams that end in the word with this hash, `read` words into the text; returns how many.

    `recent` holds the hashes of the last 1, 2, … words and is brought up to date.
    """
    count = 0
    signed = np.uint64(np.int64(np.int32(value)))
    for size in range(min(read, sizes[0] - 1), 0, -1):
        recent[size] = recent[size - 1] * NGRAM_PRIME + signed
        count = append_bucket(int(recent[size] % np.uint64(sizes[3])), known, bucket_rows, marks, ids, count)
    recent[0] = signed
    return count


@kernel
def add_rows(rows: NDArray[np.float32], ids: Sizes, count: int, total: NDArray[np.float32]) -> None:
    """Add the named rows to `total`."""
    width = len(total)
    for index in range(count):
        row = ids[index]
        for column in range(width):
            total[column] += rows[row, column]


@kernel
def mean_rows(
    data: Bytes,
    starts: Offsets,
    ends: Offsets,
    words: Bytes,
    offsets: Offsets,
    slots: Sizes,
    bucket_rows: Sizes,
    marks: Bytes,
    sizes: tuple[int, int, int, int],
    rows: NDArray[np.float32],
    hidden: NDArray[np.float32],
) -> None:
    """The mean of the feature vectors of every text.

    A word's own features (itself and its character n-grams) are summed once and remembered: texts repeat their words.
    """
    known = len(offsets) - 1
    most, width = sizes[2], rows.shape[1]
    memo_size = MEMO_WORDS if most > 0 else 1
    memo_keys = np.zeros(memo_size, np.uint64)
    memo_counts = np.zeros(memo_size, np.int64)
    memo = np.zeros((memo_size, width), np.float32)
    ids = np.zeros(CHUNK * (most + 1) + MAX_WORD_NGRAMS + 1, np.int32)
    letters = np.zeros(CHUNK + 4 * most + 2, np.uint8)
    recent = np.zeros(MAX_WORD_NGRAMS, np.uint64)
    vector, sums = np.zeros(width, np.float32), np.zeros(width, np.float32)
    for text in range(len(starts)):
        at, end, read, total = starts[text], ends[text], 0, 0
        finished = False
        while not finished:
            first, at, value, number = next_number(data, at, end, words, offsets, slots)
            finished = first == at
            if most > 0 and not finished:
                key = hash_span(data, first, at, MEMO_SEED) | np.uint64(1)
                slot = np.int64(key >> np.uint64(32)) % memo_size
                if memo_keys[slot] != key:
                    for column in range(width):
                        sums[column] = 0
                    count = 0
                    for begin in range(first - 1, at + 1, CHUNK):
                        stop = min(begin + CHUNK, at + 1)
                        found = subword_rows(
                            data, first, at, begin, stop, known, sizes, bucket_rows, marks, letters, ids
                        )
                        add_rows(rows, ids, found, sums)
                        count += found
                    if number >= 0:
                        ids[0] = number
                        add_rows(rows, ids, 1, sums)
                        count += 1
                    for column in range(width):
                        memo[slot, column] = sums[column]
                    memo_keys[slot], memo_counts[slot] = key, count
                for column in range(width):
                    vector[column] += memo[slot, column]
                total += memo_counts[slot]
            elif number >= 0:
                ids[0] = number
                add_rows(rows, ids, 1, vector)
                total += 1
            if sizes[0] > 1:
                found = ngram_rows(recent, read, value, known, sizes, bucket_rows, marks, ids)
                add_rows(rows, ids, found, vector)
                total += found
                read += 1
        for column in range(width):
            hidden[text, column] = vector[column] / np.float32(max(total, 1))
            vector[column] = 0
