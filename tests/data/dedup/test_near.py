"""Near duplicates end to end: against planted similarities, brute force, and real editions of a textbook."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingot.data.apply import apply
from ingot.data.engine.shard import Shard
from ingot.data.engine.work import Work
from ingot.data.steps.near_dedup import NearDedupStep, verify
from tests.data.dedup.reference import corpus, pair, shingles, similarity, words
from tests.data.dedup.shards import run

STEP = NearDedupStep()


def components(names: list[str], edges: list[tuple[str, str]]) -> set[frozenset[str]]:
    """Connected sets of two or more, by brute force."""
    sets = {name: frozenset([name]) for name in names}
    for first, second in edges:
        joined = sets[first] | sets[second]
        for name in joined:
            sets[name] = joined
    return {each for each in sets.values() if len(each) > 1}


@pytest.mark.parametrize("cuts", [(), (60, 61, 180), tuple(range(20, 260, 20))])
def test_reference_corpus(cuts: tuple[int, ...]) -> None:
    """The shipped corpus: exactly the expected clusters, however it is cut; 40 clusters, 120 documents removed."""
    documents, expected = corpus()
    result = run(STEP, documents, cuts)
    assert result.clusters() == expected
    assert (len(documents), len(expected), len(result.removed())) == (260, 40, 120)
    texts = {row["id"]: row["text"] for row in documents}
    for row in result.rows:
        if row["broken"]:
            assert row["duplicate_similarity"] == pytest.approx(alike(texts[row["id"]], texts[row["reason"]]), abs=1e-6)
            cluster = next(each for each in expected if row["id"] in each)
            assert row["duplicate_count"] == len(cluster)
            assert len(texts[row["reason"]].encode()) == max(len(texts[name].encode()) for name in cluster)


def alike(first: str, second: str) -> float:
    """Plain similarity of documents of the reference corpus, which differ also in capitals and a final mark."""
    return similarity(first.strip("!"), second.strip("!"))


def test_newest_copy_stays_whatever_the_order() -> None:
    documents, _ = corpus()
    dates = {row["id"]: row["date"] for row in documents}
    step = NearDedupStep(keep="newest")
    removed = run(step, documents, (100,)).removed()
    assert all(dates[gone] <= dates[kept] for gone, kept in removed.items())
    backwards = run(step, documents[::-1], (33, 200))
    assert backwards.removed() == removed


def test_recall_follows_the_s_curve_and_nothing_below_the_minimum_is_joined() -> None:
    """150 planted pairs at each of five similarities; unverified, so that the curve is seen below `min_jaccard` too."""
    generator = random.Random(11)
    step, pairs = NearDedupStep(min_jaccard=None), 150
    documents, true = [], {}
    for bin_number, wanted in enumerate((0.5, 0.6, 0.7, 0.8, 0.9)):
        for number in range(pairs):
            texts = pair(wanted, generator)
            name = f"{bin_number}-{number}"
            true[name] = similarity(*texts)
            documents += [{"id": f"{name}-{copy}", "text": text} for copy, text in enumerate(texts)]
    removed = run(step, documents, (301, 900)).removed()
    assert all(gone.rsplit("-", 1)[0] == kept.rsplit("-", 1)[0] for gone, kept in removed.items())
    met = {gone.rsplit("-", 1)[0] for gone in removed}
    for bin_number in range(5):
        names = [f"{bin_number}-{number}" for number in range(pairs)]
        chances = [step.probability(true[name]) for name in names]
        spread = sum(chance * (1 - chance) for chance in chances) ** 0.5
        assert abs(len(met.intersection(names)) - sum(chances)) <= 4 * spread + 1
    verified = {gone.rsplit("-", 1)[0] for gone in run(STEP, documents).removed()}
    assert verified == {name for name in met if true[name] >= 0.7}


SHORT = st.lists(st.sampled_from(["a", "b", "c", "d"]), min_size=0, max_size=7).map(" ".join)


@settings(max_examples=25)
@given(st.lists(SHORT, min_size=2, max_size=14), st.sampled_from([0.3, 0.5, 0.7, 1.0]), st.data())
def test_clusters_are_those_of_brute_force(texts: list[str], minimum: float, data: st.DataObject) -> None:
    """64 bands of one row leave no pair of similarity 0.3 unmet, so that the clusters must be the true ones."""
    step = NearDedupStep(bands=64, rows=1, shingle_size=2, min_jaccard=minimum)
    sets = {str(number): shingles(text, min(2, len(text.split()))) for number, text in enumerate(texts) if text.split()}
    edges = [
        (one, two)
        for one, two in combinations(sets, 2)
        if len(sets[one] & sets[two]) / len(sets[one] | sets[two]) >= minimum
    ]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(texts)), max_size=3)))
    assert run(step, texts, cuts).clusters() == components(list(sets), edges)


def test_giant_components_give_the_same_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    """70 versions of each of three documents, neighbours alike: compared by neighbours in buckets as by all pairs."""
    generator = random.Random(3)
    documents = []
    for family in range(3):
        version = words(generator, 200)
        for number in range(70):
            documents.append({"id": f"{family}-{number}", "text": " ".join(version)})
            version[generator.randrange(200)] = generator.choice(words(generator, 5))
    everything = run(STEP, documents, (100,))
    monkeypatch.setattr(verify, "GIANT", 10)
    assert run(STEP, documents, (100,)).rows == everything.rows
    assert len(everything.clusters()) == 3 and len(everything.removed()) == 207


def test_short_documents_are_compared_as_a_whole_and_empty_ones_not_at_all() -> None:
    texts = ["", "one", "ONE!", "one two", "two one", "...", "one two three"]
    assert set(run(STEP, texts).clusters()) == {frozenset(["1", "2"])}
    assert run(STEP, ["", " ", "-"]).removed() == {}
    assert run(STEP, pyarrow.table({"text": pyarrow.array([], pyarrow.string())})).rows == []


def test_reason_tells_the_similarity_to_the_copy_that_stays() -> None:
    first = words(random.Random(1), 200)
    table = apply(STEP, [" ".join(first), " ".join([*first, "more"])])
    assert table.column("removed_by").to_pylist() == [
        "near duplicate of another document 0.9949 Jaccard similarity",
        None,
    ]
    assert table.column("_duplicate_location").to_pylist() == [1, None]


def test_same_bytes_for_the_same_documents(tmp_path: Path) -> None:
    documents, _ = corpus()
    base = tmp_path / "base.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(documents), base)
    shard = Shard(0, "all", base, len(documents), base.stat().st_size)
    paths = [STEP.annotate([shard], Work(tmp_path / name))[0] for name in ("one", "two")]
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_editions_of_a_textbook_against_all_pairs(rows_of: Callable[[str], list[dict[str, Any]]]) -> None:
    """Real near duplicates: every cluster lies inside a true one, and at least 90 % of what should go goes."""
    text = pytest.importorskip("datatrove.utils.text")
    sparse = pytest.importorskip("scipy.sparse")
    rows = [row for row in rows_of("openstax/modules.jsonl.gz") if row["book"] == "osbooks-biology-bundle"]
    documents = [{"id": str(number), "text": row["text"][:2500]} for number, row in enumerate(rows)]
    numbers: dict[tuple[str, ...], int] = {}
    rows_and_columns = [
        (row, numbers.setdefault(shingle, len(numbers)))
        for row, document in enumerate(documents)
        for shingle in shingles(text.simplify_text(document["text"], text.DEF_TEXT_NORM_CONFIG))
    ]
    one, two = np.array(rows_and_columns).T
    table = sparse.csr_matrix((np.ones(len(one)), (one, two)), shape=(len(documents), len(numbers)))
    common = sparse.triu(table @ table.T, k=1).tocoo()  # how many shingles each pair shares
    sizes = np.asarray(table.sum(axis=1)).ravel()
    alike = common.data / (sizes[common.row] + sizes[common.col] - common.data) >= 0.7
    edges = [(str(row), str(column)) for row, column in zip(common.row[alike], common.col[alike], strict=True)]
    truth = components([document["id"] for document in documents], edges)
    found = run(STEP, documents, (len(documents) // 2,))
    assert len(edges) > 5
    assert all(any(cluster <= true for true in truth) for cluster in found.clusters())
    assert len(found.removed()) >= 0.9 * sum(len(cluster) - 1 for cluster in truth)
