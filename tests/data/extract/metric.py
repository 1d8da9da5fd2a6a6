"""The measure of the article extraction benchmark (Scrapinghub 2020): shingles of four words, as multisets.

Precision and recall are averaged over pages; F1 is the harmonic mean of the two averages.
"""

from __future__ import annotations

import re
from collections import Counter
from statistics import mean

WORD = re.compile(r"\w+")


def shingles(text: str) -> Counter[tuple[str, ...]]:
    """Runs of four words; a shorter text is one run."""
    words = WORD.findall(text)
    return Counter(tuple(words[start : start + 4]) for start in range(max(1, len(words) - 3)) if words)


def f1_score(pairs: list[tuple[str, str]]) -> float:
    """F1 over pairs of (truth, found)."""
    precisions, recalls = [], []
    for truth, found in pairs:
        wanted, given = shingles(truth), shingles(found)
        shared = (wanted & given).total()
        if given:
            precisions.append(shared / given.total())
        if wanted:
            recalls.append(shared / wanted.total())
    precision, recall = mean(precisions), mean(recalls)
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0
