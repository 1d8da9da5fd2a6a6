"""Shingles against datatrove, signatures against brute force, the theory and datasketch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingot.data.clusters import components
from ingot.data.native import Hashes
from ingot.data.steps.near_dedup import NearDedupStep
from ingot.data.steps.near_dedup.minhash import band_keys, family, shingles_of, signatures_of, sorted_sets
from ingot.data.steps.near_dedup.verify import jaccard
from ingot.data.text.texts import Texts

STEP = NearDedupStep()


def sets_of(texts: list[str], step: NearDedupStep = STEP) -> list[Hashes]:
    return sorted_sets(*shingles_of(Texts.of(texts), step))


def signature_table(sets: list[Hashes], count: int) -> Any:
    offsets = np.concatenate([[0], np.cumsum([len(each) for each in sets])]).astype(np.int64)
    return signatures_of(np.concatenate(sets), offsets, count)


def pair_with_jaccard(generator: np.random.Generator, similarity: float, union: int = 300) -> tuple[Hashes, Hashes]:
    """Two sets of random hashes whose union has `union` members and whose Jaccard similarity is as near as can be."""
    members = generator.integers(0, 2**64, size=union, dtype=np.uint64)
    common = round(similarity * union)
    middle = common + (union - common) // 2
    return np.sort(members[:middle]), np.sort(np.concatenate([members[:common], members[middle:]]))


def test_shingles_are_those_of_datatrove(rows_of: Callable[[str], list[dict[str, Any]]]) -> None:
    """On real pages: as many different windows of five words, and the same Jaccard similarities."""
    text = pytest.importorskip("datatrove.utils.text")
    pages = [row["text"] for row in rows_of("dclm_human_quality/docs.jsonl.gz")[:150]]
    pages += [page[: len(page) * 9 // 10] + " and another end" for page in pages]
    expected = []
    for page in pages:
        words = text.simplify_text(page, text.DEF_TEXT_NORM_CONFIG).split()
        expected.append({tuple(words[at : at + 5]) for at in range(max(1, len(words) - 4))})
    found = sets_of(pages)
    same = sum(len(ours) == len(theirs) for ours, theirs in zip(found, expected, strict=True))
    assert same >= 0.99 * len(pages)  # a final sigma or a script without spaces may differ
    for one in range(150):
        union = len(expected[one] | expected[one + 150])
        theirs = len(expected[one] & expected[one + 150]) / union
        assert abs(jaccard(found[one], found[one + 150], 0.0) - theirs) < 0.01


@settings(max_examples=60)
@given(st.lists(st.sampled_from(["a", "b", "cd", "漢", "字"]), max_size=15), st.integers(1, 6))
def test_windows_are_equal_exactly_when_their_words_are(words: list[str], size: int) -> None:
    shingles, _ = shingles_of(Texts.of([" ".join(words)]), NearDedupStep(shingle_size=size))
    used = min(size, len(words))
    windows = [tuple(words[start : start + used]) for start in range(len(words) - used + 1)] if words else []
    assert len(shingles) == len(windows)
    for one, first in zip(shingles.tolist(), windows, strict=True):
        for two, second in zip(shingles.tolist(), windows, strict=True):
            assert (one == two) == (first == second)


def test_scripts_without_spaces_have_a_character_for_a_word() -> None:
    spaced, joined, mixed = sets_of(["漢 字 か な ไ ท", "漢字かなไท", "ABC漢字かなไท"])
    assert (spaced == joined).all()
    assert len(mixed) == 3 and set(joined.tolist()) < set(mixed.tolist())


def test_characters_and_the_cap() -> None:
    step = NearDedupStep(shingles="characters", shingle_size=3)
    shingles, _ = shingles_of(Texts.of(["Ab, cdé"]), step)
    again, _ = shingles_of(Texts.of(["ab cde"]), step)
    assert len(shingles) == 4 and (shingles == again).all()
    capped = NearDedupStep(text_cap=12)  # bytes: the sixth é is cut in two and left out
    first, second = sets_of(["one two éééééé", "one two éé"], capped)
    assert (first == second).all()
    assert NearDedupStep(shingles="characters").size == 24


def test_tokens_of_a_tokenizer(tmp_path: Any) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[UNK]": 0, "a": 1, "b": 2, "c": 3}, "[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    step = NearDedupStep(shingles="tokens", tokenizer=tmp_path / "tokenizer.json", shingle_size=2)
    first, second, third = sets_of(["a b c a b", "x y", "z"], step)
    assert (len(first), len(second), len(third)) == (3, 1, 1)  # ab bc ca; two unknown ones; one alone
    with pytest.raises(ValueError, match="go together"):
        NearDedupStep(shingles="tokens")


def test_signature_is_the_smallest_value_over_the_set() -> None:
    """Against Python integers of any size."""
    generator = np.random.default_rng(3)
    sets = [generator.integers(0, 2**64, size=size, dtype=np.uint64) for size in (1, 0, 7, 3000, 0)]
    factors, summands = family(6)
    for members, signature in zip(sets, signature_table(sets, 6).tolist(), strict=True):
        for value, a, b in zip(signature, factors.tolist(), summands.tolist(), strict=True):
            low = [member % 2**32 for member in members.tolist()]
            assert value == min(((a * x + b) % 2**32 for x in low), default=2**32 - 1)
    assert all(factor % 2 for factor in factors.tolist())


@pytest.mark.parametrize("similarity", [0.0, 0.2, 0.5, 0.8, 0.95, 1.0])
def test_values_agree_as_often_as_the_sets_are_alike(similarity: float) -> None:
    """200 pairs x 112 values: the mean agreement within four binomial deviations of J, their spread as binomial."""
    generator, pairs, count = np.random.default_rng(1), 200, 112
    sets = [member for _ in range(pairs) for member in pair_with_jaccard(generator, similarity)]
    true = jaccard(sets[0], sets[1], 0.0)
    table = signature_table(sets, count)
    estimates = (table[0::2] == table[1::2]).mean(axis=1)
    deviation = (true * (1 - true) / count) ** 0.5
    assert abs(estimates.mean() - true) <= 4 * deviation / pairs**0.5
    assert abs(estimates.std() - deviation) <= 0.25 * deviation


def test_estimates_agree_with_datasketch() -> None:
    """The same sets of shingles: our estimates are as near to the truth as those of datasketch's 61-bit family."""
    datasketch = pytest.importorskip("datasketch")
    generator, count = np.random.default_rng(5), 112
    ours, theirs, truth = [], [], []
    for similarity in np.linspace(0.1, 0.95, 60):
        first, second = pair_with_jaccard(generator, float(similarity))
        table = signature_table([first, second], count)
        ours.append(float((table[0] == table[1]).mean()))
        sketches = [datasketch.MinHash(num_perm=count) for _ in range(2)]
        for sketch, members in zip(sketches, (first, second), strict=True):
            sketch.update_batch([member.to_bytes(8, "little") for member in members.tolist()])
        theirs.append(sketches[0].jaccard(sketches[1]))
        truth.append(jaccard(first, second, 0.0))
    spread = np.sqrt(np.mean([t * (1 - t) / count for t in truth]))
    our_error = np.sqrt(np.mean((np.array(ours) - truth) ** 2))
    their_error = np.sqrt(np.mean((np.array(theirs) - truth) ** 2))
    assert our_error < 1.25 * spread and abs(our_error - their_error) < 0.4 * spread
    assert np.abs(np.array(ours) - np.array(theirs)).max() < 4.5 * (2**0.5) * 0.5 / count**0.5


@pytest.mark.parametrize(("bands", "rows"), [(14, 8), (26, 11), (5, 3)])
def test_pairs_meet_with_the_probability_of_the_s_curve(bands: int, rows: int) -> None:
    step, pairs = NearDedupStep(bands=bands, rows=rows), 500
    for similarity in (0.4, 0.6, 0.7, 0.8, 0.9):
        generator = np.random.default_rng(int(similarity * 10))
        sets = [member for _ in range(pairs) for member in pair_with_jaccard(generator, similarity)]
        keys = band_keys(signature_table(sets, bands * rows), bands, rows)
        met = (keys[0::2] == keys[1::2]).any(axis=1)
        expected = step.probability(jaccard(sets[0], sets[1], 0.0))
        assert abs(met.mean() - expected) <= 4 * (expected * (1 - expected) / pairs) ** 0.5 + 1 / pairs
        strangers = keys[0:-2:2] == keys[2::2]  # members of different pairs share nothing
        assert not strangers.any()


def test_s_curve_that_is_told() -> None:
    values = {0.3: 0.0009, 0.5: 0.053, 0.7: 0.56, 0.8: 0.92, 0.9: 0.9996}
    for similarity, stated in values.items():
        assert STEP.probability(similarity) == pytest.approx(stated, rel=0.03)
    assert "92 % at 0.8" in " ".join(str(NearDedupStep.__doc__).split())
    first, second = STEP.say()
    assert "14 bands x 8 rows" in first and "knee at Jaccard 0.72" in first
    assert "0.5: 5.33 %" in second and "0.8: 92.35 %" in second and "0.9: 99.96 %" in second


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=12))
def test_union_find_gives_connected_components(edges: list[tuple[int, int]]) -> None:
    sets = [{item} for item in range(10)]
    for first, second in edges:
        one = next(each for each in sets if first in each)
        two = next(each for each in sets if second in each)
        if one is not two:
            sets.remove(two)
            one |= two
    ends = np.array(edges, np.int64).reshape(-1, 2)
    found = components(np.ascontiguousarray(ends[:, 0]), np.ascontiguousarray(ends[:, 1]), 10).tolist()
    assert found == [min(next(each for each in sets if item in each)) for item in range(10)]


@given(st.sets(st.integers(0, 20)), st.sets(st.integers(0, 20)), st.sampled_from([0.0, 0.25, 0.5, 0.7, 1.0]))
def test_jaccard_against_python_sets(one: set[int], two: set[int], minimum: float) -> None:
    expected = len(one & two) / len(one | two) if one | two else 1.0
    first, second = (np.array(sorted(each), np.uint64) for each in (one, two))
    found = jaccard(first, second, minimum)
    assert found == expected if expected >= minimum else found in (0.0, expected)
    assert (found >= minimum) == (expected >= minimum)


def test_the_family_is_fixed() -> None:
    """Numbers written down once, so that signatures of two releases can be compared."""
    factors, summands = family(112)
    assert factors[:2].tolist() == [232349127, 903263069]
    assert summands[:2].tolist() == [2888885585, 860202145]
