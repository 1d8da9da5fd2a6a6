"""Texts to token ids in CPU kernels: cut (pretokens.py), look up (cache.py), merge what is new (merges.py).

Invariants: the ids are those of the `tokenizers` library and of tiktoken for the same vocabulary, whatever was encoded
before and however texts are divided into batches. Memory is bounded by the batch and the cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingot.data.native import loop
from ingot.data.text.texts import Texts
from ingot.tokens.bpe.cache import (
    LONGEST,
    OFFSET_BITS,
    OFFSET_MASK,
    PretokenCache,
    copy_of,
    find,
    fits,
    key_of,
    make_cache,
    put,
    restore,
)
from ingot.tokens.bpe.merges import NONE, PIECE, ROWS, merge, merges_of_ranks, pair_table
from ingot.tokens.bpe.pretokens import pretokens
from ingot.tokens.bpe.rules import Rules

CACHE_BITS = 19  # half a million pretokens, 21 MB
BATCH_BYTES = 1_000_000  # split at once: its pretokens stay in the processor's cache


@dataclass(frozen=True)
class Encoded:
    """The ids of texts, end to end: those of text i are ids[offsets[i] : offsets[i + 1]]."""

    ids: NDArray[np.uint32]
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def lists(self) -> list[list[int]]:
        """The ids of each text as a list."""
        flat = self.ids.tolist()
        bounds = self.offsets.tolist()
        return [flat[start:stop] for start, stop in pairwise(bounds)]


@loop
def encode_pretokens(
    data: np.ndarray,
    offsets: np.ndarray,
    ends: np.ndarray,
    firsts: np.ndarray,
    cache: PretokenCache,
    fresh: PretokenCache,
    bytes_ids: np.ndarray,
    pairs: np.ndarray,
    scratch: np.ndarray,
    last: int,
    out: np.ndarray,
    written: int,
    stops: np.ndarray,
) -> int:
    """Encode the pretokens of each text, followed by the id `last` unless that is NONE. The ids go to `out` from `written`
    on, and to `stops` where those of each text end; gives the end of the last."""
    for text in range(len(offsets) - 1):
        start = offsets[text]
        for number in range(firsts[text], firsts[text + 1]):
            end = ends[number]
            length = end - start
            low, high, slot = np.uint64(0), np.uint64(0), np.int64(0)
            cached = length <= LONGEST
            if cached:
                low, high = key_of(data, start, end)
                slot = find(cache, data, start, end, low, high)
            if not cached or cache.table[slot, 1] == 0:
                count = merge(data, start, end, bytes_ids, pairs, scratch)
                ids = scratch[PIECE]
                if cached:
                    if not fits(cache, length, count):
                        restore(cache, fresh)
                        slot = find(cache, data, start, end, low, high)
                    put(cache, slot, data, start, end, low, high, ids, count)
                for index in range(count):
                    out[written + index] = ids[index]
            else:
                value = cache.table[slot, 2]
                count = np.int64(value >> np.uint64(OFFSET_BITS))
                offset = np.int64(value & OFFSET_MASK)
                if count == 1:
                    out[written] = offset  # of a single id: the id itself
                else:
                    for index in range(count):
                        out[written + index] = cache.ids[offset + index]
            written += count
            start = end
        if last != NONE:
            out[written] = last
            written += 1
        stops[text] = written
    return written


@loop
def put_tokens(cache: PretokenCache, data: np.ndarray, offsets: np.ndarray, ids: np.ndarray) -> None:
    """Put whole tokens into the cache, so that their bytes are never merged."""
    for token in range(len(ids)):
        start, end = offsets[token], offsets[token + 1]
        low, high = key_of(data, start, end)
        slot = find(cache, data, start, end, low, high)
        put(cache, slot, data, start, end, low, high, ids[token : token + 1], 1)


class FastEncoder:
    """A vocabulary, ready to encode. It caches what it has encoded, so it is not thread-safe.

    `bytes_ids` is the id of each byte (-1: none), `merges` are (left, right, rank, merged), `whole` the tokens that stay
    whole whatever the merges say, if the tokenizer has that rule.
    """

    def __init__(
        self,
        rules: Rules,
        bytes_ids: Sequence[int],
        merges: Iterable[tuple[int, int, int, int]],
        whole: Mapping[bytes, int] | None = None,
    ) -> None:
        self.rules = rules
        self._bytes_ids = np.array(bytes_ids, np.int64)
        self._pairs = pair_table(merges)
        whole = {token: id for token, id in (whole or {}).items() if token}
        if any(len(token) > LONGEST for token in whole):
            raise ValueError(f"a token of more than {LONGEST} bytes cannot stay whole")
        self._cache = make_cache(max(CACHE_BITS, (2 * len(whole)).bit_length()), sum(map(len, whole)))
        if whole:
            data = np.frombuffer(b"".join(whole), np.uint8)
            offsets = np.cumsum([0, *map(len, whole)], dtype=np.int64)
            put_tokens(self._cache, data, offsets, np.array(list(whole.values()), np.int64))
        self._fresh = copy_of(self._cache) if whole else make_cache(0)

    @classmethod
    def of_ranks(cls, rules: Rules, ranks: Mapping[bytes, int]) -> FastEncoder:
        """The encoder of a tiktoken file."""
        return cls(rules, [ranks.get(bytes([byte]), NONE) for byte in range(256)], merges_of_ranks(ranks), ranks)

    def encode(self, texts: Texts, end: int | None = None) -> Encoded:
        """The ids of each text, followed by `end` if it is given."""
        texts = _with_blank(texts) if self.rules.blank_in_front else texts
        texts = Texts(_read_only(texts.data), _read_only(texts.offsets))
        # As many ids as bytes at most: what is not written to takes no memory.
        out, offsets = np.empty(texts.bytes + len(texts), np.uint32), np.zeros(len(texts) + 1, np.int64)
        done = written = 0
        for batch in _batches(texts):
            ends, firsts = pretokens(batch, self.rules)
            longest = int(np.diff(ends, prepend=batch.offsets[0]).max(initial=0))
            written = encode_pretokens(
                *(batch.data, batch.offsets, ends, firsts, self._cache, self._fresh, self._bytes_ids, self._pairs),
                np.empty((ROWS, 2 * longest), np.int64),
                NONE if end is None else end,
                *(out, written, offsets[done + 1 : done + 1 + len(batch)]),
            )
            done += len(batch)
        return Encoded(out[:written], offsets)


def _with_blank(texts: Texts) -> Texts:
    """The texts with U+0020 before those that begin with something else."""
    import pyarrow
    import pyarrow.compute

    column = texts.column()
    as_it_is = pyarrow.compute.or_(
        pyarrow.compute.starts_with(column, " "), pyarrow.compute.equal(pyarrow.compute.binary_length(column), 0)
    )
    blank, nothing = (pyarrow.scalar(text, pyarrow.large_string()) for text in (" ", ""))
    longer = pyarrow.compute.binary_join_element_wise(blank, column, nothing)
    return Texts.of(pyarrow.compute.if_else(as_it_is, column, longer))


def _read_only(values: NDArray[Any]) -> NDArray[Any]:
    """A view that cannot be written to: numba would compile the loops again for arrays that can."""
    view = values.view()
    view.flags.writeable = False
    return view


def _batches(texts: Texts) -> Iterable[Texts]:
    """The texts in batches of about `BATCH_BYTES`; a longer text is a batch of its own."""
    start = 0
    while start < len(texts):
        limit = texts.offsets[start] + BATCH_BYTES
        stop = max(start + 1, int(np.searchsorted(texts.offsets, limit, side="right")) - 1)
        yield Texts(texts.data, texts.offsets[start : stop + 1])
        start = stop
