"""substring_dedup against brute force, against a suffix array of libdivsufsort, and on cases worked out by hand."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ingot.data.apply import apply
from ingot.data.engine.shard import Shard
from ingot.data.engine.work import Work
from ingot.data.steps.substring_dedup import SubstringDedupStep
from ingot.data.steps.substring_dedup.anchors import find_anchors
from ingot.data.steps.substring_dedup.groups import contexts_of, strikes_of
from ingot.data.steps.substring_dedup.intervals import cover, cut, union
from ingot.data.steps.substring_dedup.tasks import echo_intervals
from ingot.data.text.texts import Texts
from tests.data.dedup_substring.oracle import deduplicated, intervals_of


def dedup_in_shards(texts: list[list[str]], config: SubstringDedupStep, folder: Path) -> list[dict[str, Any]]:
    """The step's columns, one row a document; `texts` has one list a shard."""
    shards = []
    for number, documents in enumerate(texts):
        base = folder / f"{number}.parquet"
        pyarrow.parquet.write_table(pyarrow.table({"text": pyarrow.array(documents, pyarrow.string())}), base)
        size = sum(len(text.encode()) for text in documents)
        shards.append(Shard(number, f"{number}-{hash(tuple(documents))}", base, len(documents), size))
    paths = config.annotate(shards, Work(folder / "work"))
    return [row for path in paths for row in pyarrow.parquet.read_table(path).to_pylist()]


def dedup_in_memory(texts: list[str], config: SubstringDedupStep) -> list[str]:
    """The same without files: every anchor is compared, as if all of them were repeated."""
    length, joined = config.min_bytes, Texts.of(texts)
    anchors = find_anchors(joined, length)
    contexts = contexts_of(joined, anchors, np.arange(len(anchors.hashes)), 0, length)
    strikes = strikes_of(contexts, length, config.keep_first)
    intervals = np.stack([strikes["start"], strikes["end"]], axis=1)
    echoes = echo_intervals(anchors.echoes, length, config.keep_first)
    intervals = union(np.concatenate([intervals, echoes]), joined.offsets)
    result = cut(joined, cover(intervals, joined.offsets, config.coverage)).texts
    return [result[number] for number in range(len(result))]


# Texts glued from few pieces repeat a lot; letters of one, two and three bytes make cuts inside characters likely, and
# runs of one letter or of two make periodic text.
PIECES = ["abcdefghij", "klmnopqrst", "aaaaaaa", "abababab", "ä", "€uro€", "x", "yz", "\n", "0123456789"]
TEXTS = st.lists(st.lists(st.sampled_from(PIECES), max_size=12).map("".join), min_size=1, max_size=6)


RANDOM_TEXTS = st.lists(st.text("aé€", max_size=80), min_size=1, max_size=4)


@given(
    texts=TEXTS | RANDOM_TEXTS,
    length=st.integers(8, 20),
    keep_first=st.booleans(),
    coverage=st.sampled_from([1.0, 0.95, 0.8, 0.5]),
)
@example(
    texts=["éaéééaééaééé"], length=9, keep_first=True, coverage=1.0
)  # a later window is struck further to the left
def test_equal_to_brute_force(texts: list[str], length: int, keep_first: bool, coverage: float) -> None:
    config = SubstringDedupStep(min_bytes=length, keep_first=keep_first, coverage=coverage)
    assert dedup_in_memory(texts, config) == deduplicated(texts, length, keep_first, coverage)


@settings(max_examples=40)
@given(
    texts=TEXTS,
    length=st.integers(8, 20),
    keep_first=st.booleans(),
    coverage=st.sampled_from([1.0, 0.95, 0.8, 0.5]),
    shards=st.integers(1, 3),
)
def test_equal_to_brute_force_in_any_number_of_shards(
    tmp_path_factory: pytest.TempPathFactory,
    texts: list[str],
    length: int,
    keep_first: bool,
    coverage: float,
    shards: int,
) -> None:
    config = SubstringDedupStep(min_bytes=length, keep_first=keep_first, coverage=coverage)
    edges = np.linspace(0, len(texts), shards + 1).astype(int)
    divided = [texts[a:b] for a, b in pairwise(edges)]
    rows = dedup_in_shards(divided, config, tmp_path_factory.mktemp("work"))
    assert [row["text"] for row in rows] == deduplicated(texts, length, keep_first, coverage)
    for row, text in zip(rows, texts, strict=True):
        spans = row["_substring_spans"]
        assert row["substring_bytes"] == sum(len(text[a:b].encode()) for a, b in spans)
        pieces = [text[a:b] for (_, a), (b, _) in zip([(0, 0), *spans], [*spans, (len(text), 0)], strict=True)]
        assert "".join(pieces) == row["text"]
        assert row["substring_words"] == (len(row["text"].split()) if spans else None)


def suffix_array_strikes(texts: list[bytes], length: int) -> list[list[tuple[int, int]]]:
    """What the suffix array strikes: neighbours in sorted order that share `length` bytes. Texts are kept apart by a
    byte that UTF-8 never has, and no window that holds it counts."""
    pydivsufsort = pytest.importorskip("pydivsufsort")
    joined = np.frombuffer(b"".join(text + b"\xff" for text in texts), np.uint8).copy()
    array = pydivsufsort.divsufsort(joined)
    common = pydivsufsort.kasai(joined, array)  # common[i]: shared prefix of the suffixes array[i] and array[i + 1]
    to_separator = np.searchsorted(np.flatnonzero(joined == 255), np.arange(len(joined)))
    to_separator = np.flatnonzero(joined == 255)[to_separator] - np.arange(len(joined))
    pairs = np.flatnonzero(common[: len(array) - 1] >= length)
    starts = np.concatenate([array[pairs], array[pairs + 1]])
    starts = starts[to_separator[starts] >= length]
    depth = np.zeros(len(joined) + 1, np.int64)
    for start in np.unique(starts):
        depth[start] += 1
        depth[start + length] -= 1
    struck = np.cumsum(depth) > 0
    ends = np.cumsum([len(text) + 1 for text in texts])
    return [intervals_of(struck[end - len(text) - 1 : end - 1].tolist()) for text, end in zip(texts, ends, strict=True)]


@pytest.mark.parametrize("length", [100, 500])
def test_equal_to_a_suffix_array_on_real_text(
    length: int, rows_of: Callable[[str], list[dict[str, Any]]], tmp_path: Path
) -> None:
    """PEPs (public domain boilerplate, tables) in two shards: every copy struck, byte for byte the same."""
    texts = [row["text"] for row in rows_of("peps/peps_half.jsonl.gz")][:120]
    expected = suffix_array_strikes([text.encode() for text in texts], length)
    config = SubstringDedupStep(min_bytes=length, keep_first=False, coverage=1.0)
    rows = dedup_in_shards([texts[:50], texts[50:]], config, tmp_path)
    found = [
        [(len(text[:a].encode()), len(text[:b].encode())) for a, b in row["_substring_spans"]]
        for row, text in zip(rows, texts, strict=True)
    ]
    assert sum(map(len, expected)) > 20
    for text, ours, theirs in zip(texts, found, expected, strict=True):
        whole = [(_inwards(text.encode(), a, True), _inwards(text.encode(), b, False)) for a, b in theirs]
        assert ours == [(a, b) for a, b in whole if a < b]


def _inwards(text: bytes, at: int, forwards: bool) -> int:
    """The next beginning of a character."""
    while at < len(text) and text[at] & 0xC0 == 0x80:
        at += 1 if forwards else -1
    return at


def words(seed: int, count: int) -> str:
    generator = random.Random(seed)
    return " ".join("".join(generator.choices("abcdefghijklmnop", k=generator.randint(2, 9))) for _ in range(count))


def test_every_copy_is_struck_as_google_does_or_the_first_stays() -> None:
    passage, one, two, three = words(0, 60), words(1, 80), words(2, 80), words(3, 80)
    documents = [f"{one}\n{passage}", f"{passage}\n{two}", three]
    all_gone = apply(SubstringDedupStep(min_bytes=100, keep_first=False, coverage=1), documents)
    assert all_gone.column("text").to_pylist() == [f"{one}\n", f"\n{two}", three]
    one_stays = apply(SubstringDedupStep(min_bytes=100, coverage=1), documents)
    assert one_stays.column("text").to_pylist() == [documents[0], f"\n{two}", three]
    assert one_stays.column("_substring_spans").to_pylist() == [[], [[0, len(passage)]], []]
    assert one_stays.column("removed_by").to_pylist() == [None, None, None]


def test_a_passage_below_the_length_stays_and_a_short_rest_is_removed() -> None:
    passage = words(0, 60)[:200]
    documents = [passage, f"{passage} and little else"]
    assert apply(SubstringDedupStep(min_bytes=201), documents).column("text").to_pylist() == documents
    table = apply(SubstringDedupStep(min_bytes=200), documents)
    assert table.column("text").to_pylist() == [passage, " and little else"]
    assert table.column("removed_by").to_pylist() == [None, "words left after cutting repeats 3 < 50"]


def test_coverage_swallows_what_lies_between_repeats() -> None:
    """Two repeats of 400 and 500 bytes, 50 bytes apart: 900 of 950 bytes are struck, 94.7 %."""
    left, right = words(0, 200)[:400], words(1, 200)[:500]
    documents = [left, right, f"{left}{words(2, 30)[:50]}{right}tail"]
    at_95 = apply(SubstringDedupStep(min_bytes=100, coverage=0.95), documents).column("text").to_pylist()
    at_94 = apply(SubstringDedupStep(min_bytes=100, coverage=0.94), documents).column("text").to_pylist()
    assert at_95[2] == f"{words(2, 30)[:50]}tail"
    assert at_94[2] == "tail"


def test_periodic_text_keeps_one_copy_and_needs_few_anchors() -> None:
    """A megabyte of two letters and a megabyte of one: without echoes, an anchor a byte and its context would follow."""
    documents = ["ab" * 500_000, "-" * 1_000_000, "-" * 700]
    anchors = find_anchors(Texts.of(documents), 500)
    assert len(anchors.hashes) < 1_000
    table = apply(SubstringDedupStep(min_bytes=500), documents)
    assert table.column("text").to_pylist() == ["ab" * 250, "-" * 500, ""]
    every = apply(SubstringDedupStep(min_bytes=500, keep_first=False), documents)
    assert every.column("text").to_pylist() == ["", "", ""]


def test_anchors_of_equal_windows_lie_at_equal_distances() -> None:
    """The theorem that everything rests on, with about the density that the paper states, 2 / (grams + 1)."""
    passage = words(5, 100)[:520]
    text = words(6, 3_000)
    texts = Texts.of([text + passage, passage + words(7, 100), words(8, 50) + passage])
    anchors = find_anchors(texts, 500)
    starts = [len(text), len(text) + 520, int(texts.offsets[2]) + len(words(8, 50))]
    for shift in range(21):
        chosen = []
        for start in starts:
            inside = (anchors.windows[:, 1] <= start + shift) & (start + shift <= anchors.windows[:, 2])
            [row] = np.flatnonzero(inside)
            chosen.append((int(anchors.hashes[row]), int(anchors.windows[row, 0]) - start))
        assert len(set(chosen)) == 1
    grams = 500 - 500 // 3 + 1
    assert len(anchors.hashes) == pytest.approx(texts.bytes * 2 / (grams + 1), rel=0.25)
