"""MinHash and its banding against the theory, near-duplicate clusters against all pairs."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot.data.config import NearDedupStep
from ingot.data.dedup import UnionFind, exact_dedup, near_dedup
from ingot.data.document import Document
from ingot.data.minhash import buckets, signatures
from ingot.data.shingles import Hashes, hash_words, jaccard, shingle_set, window_hashes, words_of
from ingot.data.workers import Workers
from ingot.workspace.interrupt import StopSignal

WORKERS = Workers(StopSignal(), processes=1)


def pair_with_jaccard(generator: np.random.Generator, similarity: float, union: int = 300) -> tuple[Hashes, Hashes]:
    """Two sets of random hashes whose union has `union` members and whose Jaccard similarity is as near as can be."""
    members = generator.integers(0, 2**64, size=union, dtype=np.uint64)
    common = round(similarity * union)
    middle = common + (union - common) // 2
    return np.sort(members[:middle]), np.sort(np.concatenate([members[:common], members[middle:]]))


@pytest.mark.parametrize("similarity", [0.0, 0.2, 0.5, 0.8, 1.0])
def test_one_value_agrees_as_often_as_the_sets_are_alike(similarity: float) -> None:
    count = 4000
    pair = pair_with_jaccard(np.random.default_rng(1), similarity)
    first, second = signatures(list(pair), count)
    agreement = float(np.mean(first == second))
    assert abs(agreement - jaccard(*pair)) <= 4 * (similarity * (1 - similarity) / count) ** 0.5


@pytest.mark.parametrize("similarity", [0.4, 0.5, 0.6, 0.7, 0.8, 0.9])
def test_pairs_meet_with_the_probability_of_the_s_curve(similarity: float) -> None:
    step, pairs = NearDedupStep(), 600
    generator = np.random.default_rng(int(similarity * 10))
    sets = [member for _ in range(pairs) for member in pair_with_jaccard(generator, similarity)]
    table = np.stack(signatures(sets, step.bands * step.rows))
    met: set[tuple[int, int]] = set()
    for bucket in buckets(table, step.bands, step.rows):
        met.update((a, b) for a, b in combinations(bucket.tolist(), 2))
    assert all(a % 2 == 0 and b == a + 1 for a, b in met)  # different pairs share nothing and never meet
    expected = 1 - (1 - similarity**8) ** 14
    spread = (expected * (1 - expected) / pairs) ** 0.5
    assert abs(len(met) / pairs - expected) <= 4 * spread + 1 / pairs


def test_s_curve_in_the_documentation_is_true() -> None:
    step = NearDedupStep()
    values = {0.3: 0.0009, 0.5: 0.053, 0.7: 0.56, 0.8: 0.92, 0.9: 0.9996}
    for similarity, stated in values.items():
        assert step.probability(similarity) == pytest.approx(stated, rel=0.03)
    assert str(NearDedupStep.__doc__).count("92 % at 0.8") == 1


def test_signature_is_the_smallest_value_over_the_set() -> None:
    """Against one value at a time, and for documents of any size in one call."""
    generator = np.random.default_rng(3)
    sets = [generator.integers(0, 2**64, size=size, dtype=np.uint64) for size in (1, 0, 7, 70_000, 3, 0)]
    together = signatures(sets, 6)
    for members, signature in zip(sets, together, strict=True):
        alone = [signatures([np.array([member], dtype=np.uint64)], 6)[0] for member in members[:50].tolist()]
        if len(members) <= 50:
            expected = np.min(alone, axis=0) if alone else np.full(6, 2**32 - 1)
            assert (signature == expected).all()
        else:
            assert (signature <= np.min(alone, axis=0)).all()


@given(st.lists(st.sampled_from("abcde"), max_size=30), st.integers(1, 6))
def test_windows_are_equal_exactly_when_their_words_are(words: list[str], size: int) -> None:
    hashes = window_hashes(hash_words(words), size).tolist()
    used = min(size, len(words))
    windows = [tuple(words[start : start + used]) for start in range(len(words) - used + 1)] if words else []
    assert len(hashes) == len(windows)
    for (one, first), (two, second) in combinations(zip(hashes, windows, strict=True), 2):
        assert (one == two) == (first == second)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=12))
def test_union_find_gives_connected_components(edges: list[tuple[int, int]]) -> None:
    forest = UnionFind(10)
    components = [{n} for n in range(10)]
    for first, second in edges:
        forest.union(first, second)
        a = next(c for c in components if first in c)
        b = next(c for c in components if second in c)
        if a is not b:
            components.remove(b)
            a |= b
    assert sorted(map(sorted, components)) == sorted(
        [*forest.clusters(), *([n] for n in range(10) if components.count({n}))]
    )


VOCABULARY = [f"word{n}" for n in range(4000)]


def edited(words: list[str], edits: int, generator: random.Random) -> list[str]:
    """The words with some of them replaced."""
    changed = list(words)
    for place in generator.sample(range(len(words)), edits):
        changed[place] = generator.choice(VOCABULARY)
    return changed


def test_planted_near_duplicates() -> None:
    """30 families of one original and 4 edited copies among 150 singles: found as the S-curve says, none too many."""
    generator = random.Random(7)
    documents: list[Document] = []
    for family in range(30):
        original = generator.choices(VOCABULARY, k=400)
        documents.append(Document(f"{family:02d}-original", " ".join(original) + " the end", "s"))
        for copy, edits in enumerate((2, 4, 8, 16)):  # Jaccard about 0.95, 0.9, 0.82, 0.68
            documents.append(Document(f"{family:02d}-copy{copy}", " ".join(edited(original, edits, generator)), "s"))
    documents += [Document(f"single-{n:03d}", " ".join(generator.choices(VOCABULARY, k=300)), "s") for n in range(150)]
    step = NearDedupStep()
    verdicts = near_dedup(documents, step, WORKERS)

    sets = [shingle_set(document.text, 5) for document in documents]
    similar = {(a, b): jaccard(sets[a], sets[b]) for a, b in combinations(range(150), 2)}
    for index, verdict in enumerate(verdicts):
        if verdict.removed:
            assert verdict.duplicate_of is not None
            kept = documents[verdict.duplicate_of]
            assert kept.id[:2] == documents[index].id[:2]  # precision: only inside a family
            assert kept.id.endswith("original")  # the longest stays
            assert not verdicts[verdict.duplicate_of].removed
    removed = {index for index, verdict in enumerate(verdicts) if verdict.removed}
    easy = {b for (a, b), s in similar.items() if s >= 0.9 and documents[a].id.endswith("original")}
    assert len(easy) > 30
    assert len(easy - removed) <= 1  # each is missed with probability 4e-4
    lone = {n for n in range(150) if all(s < step.min_jaccard for pair, s in similar.items() if n in pair)}
    assert lone.isdisjoint(removed)


def test_real_near_duplicates_against_all_pairs(rows_of: Callable[[str], list[dict[str, Any]]]) -> None:
    """A textbook in several editions: the clusters lie inside the true ones and few documents are missed."""
    rows = [row for row in rows_of("openstax/modules.jsonl.gz") if row["book"] == "osbooks-biology-bundle"]
    documents = [Document(str(n), row["text"][:2500], "s") for n, row in enumerate(rows)]
    step = NearDedupStep()
    verdicts = near_dedup(documents, step, WORKERS)
    sets = [set(zip(*(words_of(d.text)[k:] for k in range(5)), strict=False)) for d in documents]
    truth = UnionFind(len(documents))
    alike = 0
    for a, b in combinations(range(len(documents)), 2):
        if min(len(sets[a]), len(sets[b])) < step.min_jaccard * max(len(sets[a]), len(sets[b])):
            continue
        common = len(sets[a] & sets[b])
        if common / max(1, len(sets[a]) + len(sets[b]) - common) >= step.min_jaccard:
            truth.union(a, b)
            alike += 1
    should_go = sum(len(cluster) - 1 for cluster in truth.clusters())
    goes = [(n, v.duplicate_of) for n, v in enumerate(verdicts) if v.removed]
    assert alike > 5
    assert all(kept is not None and truth.find(n) == truth.find(kept) for n, kept in goes)
    assert len(goes) >= 0.9 * should_go


def test_short_documents_are_compared_as_a_whole() -> None:
    texts = ["", "one", "ONE!", "one two", "two one", "one two three"]
    documents = [Document(str(n), text, "s") for n, text in enumerate(texts)]
    verdicts = near_dedup(documents, NearDedupStep(), WORKERS)
    assert [verdict.removed for verdict in verdicts] == [False, True, False, False, False, False]
    assert near_dedup([], NearDedupStep(), WORKERS) == []


def test_reason_tells_the_similarity_to_the_kept_copy() -> None:
    words = [f"w{n}" for n in range(200)]
    documents = [Document("a", " ".join(words), "s"), Document("b", " ".join([*words, "more"]), "s")]
    first, second = near_dedup(documents, NearDedupStep(), WORKERS)
    assert (first.rule, first.detail, first.duplicate_of) == ("Jaccard", "0.99 with b (2 alike)", 1)
    assert not second.removed


def test_exact_copies_up_to_case_and_space() -> None:
    texts = ["Same text", "same  text\n", "SAME TEXT ", "other", "same text."]
    documents = [Document(str(n), text, "s") for n, text in enumerate(texts)]
    verdicts = exact_dedup(documents)
    assert [verdict.removed for verdict in verdicts] == [True, False, True, False, False]  # the longest stays
    assert f"{verdicts[0].rule} {verdicts[0].detail}" == "same text as 1 (3 copies)"
    same_length = exact_dedup([Document("b", "x y", "s"), Document("a", "X Y", "s")])
    assert [verdict.removed for verdict in same_length] == [True, False]  # then the smallest id
