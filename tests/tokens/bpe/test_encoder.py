"""The fast encoder against tiktoken with its real vocabularies, and the merging against the definition."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st

from ingot.data.text.texts import Texts
from ingot.tokens.bpe import encoder as encoder_module
from ingot.tokens.bpe.encoder import FastEncoder
from ingot.tokens.bpe.rules import GPT2, TIKTOKEN
from tests.slow import first_fast
from tests.tokens.bpe.conftest import AWKWARD

Ranks = Callable[[str], dict[bytes, int]]
Peer = Callable[[str], tiktoken.Encoding]


@pytest.mark.parametrize("name", first_fast(["cl100k_base", "r50k_base", "o200k_base"]))
def test_real_texts_as_tiktoken(name: str, ranks: Ranks, peer: Peer, real_texts: list[str]) -> None:
    random = np.random.default_rng(0)
    awkward = ["".join(random.choice(AWKWARD, size)) for size in random.integers(0, 20, 3000)]
    every = [
        "".join(map(chr, range(start, start + 512)))
        for start in range(0, 0x110000, 512)
        if not 0xD6 <= start >> 8 < 0xE0
    ]
    long = ["a" * 5000, "ab" * 3000, " " * 3000 + "x", "=" * 2999, "é中" * 2000, "9" * 1000, ""]
    texts = [*real_texts, *awkward, *every[:300], *long]
    found = FastEncoder.of_ranks(TIKTOKEN[name][1], ranks(name)).encode(Texts.of(texts)).lists()
    expected = peer(name).encode_ordinary_batch(texts, num_threads=1)
    differing = [text for text, ours, theirs in zip(texts, found, expected, strict=True) if ours != theirs]
    assert differing == []


def by_definition(data: bytes, ranks: dict[bytes, int]) -> list[int]:
    """Merge the pair of lowest rank, the leftmost of equals, until no pair is a token."""
    pieces = [bytes([byte]) for byte in data]
    while True:
        known = [
            (ranks[left + right], place)
            for place, (left, right) in enumerate(pairwise(pieces))
            if left + right in ranks
        ]
        if not known:
            return [ranks[piece] for piece in pieces]
        _, place = min(known)
        pieces[place : place + 2] = [pieces[place] + pieces[place + 1]]


@given(data=st.data())
def test_merges_by_definition(data: st.DataObject) -> None:
    letters = st.text("ab", min_size=2, max_size=5)
    extra = data.draw(st.lists(letters, unique=True, max_size=12))
    ranks = {bytes([byte]): byte for byte in range(256)} | {
        word.encode(): 256 + rank for rank, word in enumerate(extra)
    }
    words = data.draw(st.lists(st.text("abc", min_size=1, max_size=40), min_size=1))
    encoder = FastEncoder.of_ranks(GPT2, ranks)
    expected = [
        [ranks[word.encode()]] if word.encode() in ranks else by_definition(word.encode(), ranks) for word in words
    ]
    assert encoder.encode(Texts.of(words)).lists() == expected
    assert encoder.encode(Texts.of(words)).lists() == expected, "the second time they come out of the cache"


def test_a_full_cache_changes_nothing(ranks: Ranks, real_texts: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    few = {token: rank for token, rank in ranks("r50k_base").items() if rank < 1000}
    texts = Texts.of(real_texts[::8])
    expected = FastEncoder.of_ranks(GPT2, few).encode(texts)
    monkeypatch.setattr(encoder_module, "CACHE_BITS", 4)
    monkeypatch.setattr(encoder_module, "BATCH_BYTES", 10_000)
    small = FastEncoder.of_ranks(GPT2, few)
    found = small.encode(texts)
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_array_equal(found.offsets, expected.offsets)
    assert small._cache.used[0] < len(small._cache.table)
    merged = FastEncoder(GPT2, list(range(256)), [])  # nothing is put into its cache beforehand
    assert merged.encode(texts).ids.tolist() == list(texts.data[texts.offsets[0] : texts.offsets[-1]])


def test_the_end_follows_every_text() -> None:
    encoder = FastEncoder(GPT2, list(range(256)), [])
    assert encoder.encode(Texts.of(["ab", "", "c"]), end=999).lists() == [[97, 98, 999], [999], [99, 999]]
    assert encoder.encode(Texts.of([]), end=999).lists() == []
    part = Texts(Texts.of(["xx", "ab", "", "c"]).data, np.array([2, 4, 4, 5]))
    assert encoder.encode(part).lists() == [[97, 98], [], [99]], "texts need not begin where the bytes begin"
