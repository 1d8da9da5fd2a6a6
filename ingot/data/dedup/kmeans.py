"""k-means on the sphere: embeddings to the nearest of k centroids by cosine.

    assign      each vector to the centroid with the largest cosine
    update      a centroid becomes the mean of its vectors, at length one; an empty one stays where it is

Invariant: the same vectors in the same order and the same seed give the same centroids.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ingot.data.dedup.embeddings import Vectors, unit

ROUNDS = 20
BLOCK_ROWS = 4096  # vectors compared with all centroids at once


def nearest(vectors: Vectors, centroids: Vectors) -> NDArray[np.int64]:
    """The number of the nearest centroid of every vector."""
    found = np.empty(len(vectors), np.int64)
    for first in range(0, len(vectors), BLOCK_ROWS):
        found[first : first + BLOCK_ROWS] = np.argmax(vectors[first : first + BLOCK_ROWS] @ centroids.T, axis=1)
    return found


def centroids_of(vectors: Vectors, count: int, seed: int) -> Vectors:
    """`count` centroids (fewer if there are fewer vectors), after at most `ROUNDS` rounds."""
    chosen = np.sort(np.random.default_rng(seed).permutation(len(vectors))[:count])
    centroids = vectors[chosen].copy()
    before = np.full(len(vectors), -1, np.int64)
    for _ in range(ROUNDS):
        cluster = nearest(vectors, centroids)
        if (cluster == before).all():
            break
        before = cluster
        sums = np.zeros_like(centroids)
        np.add.at(sums, cluster, vectors)
        filled = np.bincount(cluster, minlength=len(centroids)) > 0
        centroids[filled] = unit(sums[filled])
    return centroids
