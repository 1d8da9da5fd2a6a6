"""Remove copies: exact ones by the hash of the normalised text, near ones by MinHash, verified by true Jaccard.

Which copy stays is a rule, not an accident of order: the longest text, then the smallest id. Near duplicates form
clusters by union-find over the verified pairs; this is transitive, so that the reason of a removed document says how
similar it is to the one that stays, which may be less than the threshold.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np

from ingot.data.config import NearDedupStep
from ingot.data.document import KEEP, Document, Verdict
from ingot.data.minhash import buckets, signatures
from ingot.data.shingles import Hashes, jaccard, shingle_sets
from ingot.data.workers import Workers


class UnionFind:
    """Disjoint sets of 0 … n-1 with path halving; the smaller number is the root."""

    def __init__(self, count: int) -> None:
        self.parent = list(range(count))

    def find(self, item: int) -> int:
        """The root of the set that `item` is in."""
        while self.parent[item] != item:
            self.parent[item] = self.parent[self.parent[item]]
            item = self.parent[item]
        return item

    def union(self, first: int, second: int) -> None:
        """Join two sets."""
        first, second = self.find(first), self.find(second)
        self.parent[max(first, second)] = min(first, second)

    def clusters(self) -> list[list[int]]:
        """Sets of two or more members, each ascending."""
        members: dict[int, list[int]] = {}
        for item in range(len(self.parent)):
            members.setdefault(self.find(item), []).append(item)
        return [cluster for cluster in members.values() if len(cluster) > 1]


def keeper(documents: Sequence[Document], cluster: Sequence[int]) -> int:
    """The member of a cluster that stays: the longest text, then the smallest id."""
    return min(cluster, key=lambda index: (-len(documents[index].text), documents[index].id))


def exact_dedup(documents: Sequence[Document]) -> list[Verdict]:
    """Remove documents whose text is the same up to case and white space."""
    same: dict[bytes, list[int]] = {}
    for index, document in enumerate(documents):
        same.setdefault(normalised_hash(document.text), []).append(index)
    verdicts = [KEEP] * len(documents)
    for cluster in same.values():
        kept = keeper(documents, cluster)
        for index in cluster:
            if index != kept:
                detail = f"{documents[kept].id} ({len(cluster)} copies)"
                verdicts[index] = Verdict("same text as", detail, duplicate_of=kept)
    return verdicts


def normalised_hash(text: str) -> bytes:
    """128 bits of the text in lower case with every run of white space as one space."""
    return blake2b(" ".join(text.lower().split()).encode("utf-8"), digest_size=16).digest()


def near_dedup(documents: Sequence[Document], step: NearDedupStep, workers: Workers) -> list[Verdict]:
    """Remove near duplicates; see `NearDedupStep` for the search and what it misses."""
    texts = [document.text for document in documents]
    hashed = workers.map(shingles_and_signatures, texts, len, step.shingle_words, step.bands * step.rows)
    sets = [shingles for shingles, _ in hashed]
    sets_of = UnionFind(len(documents))
    if documents:
        table = np.stack([signature for _, signature in hashed])
        unlike: set[tuple[int, int]] = set()
        for bucket in buckets(table, step.bands, step.rows):
            workers.stop.check()
            link(bucket.tolist(), sets, step.min_jaccard, sets_of, unlike)

    verdicts = [KEEP] * len(documents)
    for cluster in sets_of.clusters():
        kept = keeper(documents, cluster)
        for index in cluster:
            if index != kept:
                detail = f"{jaccard(sets[index], sets[kept]):.2f} with {documents[kept].id} ({len(cluster)} alike)"
                verdicts[index] = Verdict("Jaccard", detail, duplicate_of=kept)
    return verdicts


def shingles_and_signatures(texts: list[str], size: int, count: int) -> list[tuple[Hashes, np.ndarray]]:
    """Shingle set and MinHash signature of every text."""
    sets = shingle_sets(texts, size)
    return list(zip(sets, signatures(sets, count), strict=True))


def link(
    bucket: list[int], sets: list[Hashes], minimum: float, joined: UnionFind, unlike: set[tuple[int, int]]
) -> None:
    """Join the members of a bucket that are truly alike; pairs already joined or refuted are not looked at again."""
    for position, first in enumerate(bucket):
        for second in bucket[position + 1 :]:
            if (first, second) in unlike or joined.find(first) == joined.find(second):
                continue
            if jaccard(sets[first], sets[second]) >= minimum:
                joined.union(first, second)
            else:
                unlike.add((first, second))
