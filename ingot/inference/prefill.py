"""Which prompts are read together.

Prompts that join the engine in the same step are padded to a common length per bucket. Bucket lengths are 2^n and
1.5 · 2^n, so at most a third of a bucket is padding, and the number of different shapes stays small. The tokens of one
pass are bounded, because activations grow with them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

SHORTEST_BUCKET = 8
TOKENS_PER_PASS = 8192


def bucket_length(length: int) -> int:
    """The smallest bucket that holds `length` tokens."""
    bucket = SHORTEST_BUCKET
    while bucket < length:
        if bucket + bucket // 2 >= length:
            return bucket + bucket // 2
        bucket *= 2
    return bucket


def plan_passes(lengths: Sequence[int]) -> list[tuple[int, list[int]]]:
    """Passes of (padded length, indices of the sequences) that together cover every sequence once."""
    buckets: dict[int, list[int]] = defaultdict(list)
    for index, length in enumerate(lengths):
        buckets[bucket_length(length)].append(index)
    passes = []
    for padded, members in sorted(buckets.items()):
        rows = max(1, TOKENS_PER_PASS // padded)
        passes += [(padded, members[start : start + rows]) for start in range(0, len(members), rows)]
    return passes
