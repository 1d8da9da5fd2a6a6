"""A corpus of near duplicates with known clusters, made here, so that any two implementations can be compared on it.

Documents are random words of a made-up language. Family f has an original and copies in which some words were replaced;
similarities of shingles of five words follow from the edits: a replaced word spoils five shingles of either side.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import product

SYLLABLES = [a + b for a, b in product("bdfgklmnprstvz", "aeiou")]
VOCABULARY = [one + two + three for one, two, three in product(SYLLABLES[:24], SYLLABLES[24:48], SYLLABLES[48:])]


def words(generator: random.Random, count: int) -> list[str]:
    """Random words."""
    return generator.choices(VOCABULARY, k=count)


def replaced(original: Sequence[str], places: Sequence[int], generator: random.Random) -> list[str]:
    """The words with those at `places` replaced."""
    changed = list(original)
    for place in places:
        changed[place] = generator.choice(VOCABULARY)
    return changed


def shingles(text: str, size: int = 5) -> frozenset[tuple[str, ...]]:
    """Shingles of a text of this language, by plain Python."""
    parts = text.lower().split()
    return frozenset(tuple(parts[at : at + size]) for at in range(max(1, len(parts) - size + 1)))


def similarity(first: str, second: str) -> float:
    """Jaccard similarity by plain Python."""
    one, two = shingles(first), shingles(second)
    return len(one & two) / len(one | two)


def pair(similarity_wanted: float, generator: random.Random, length: int = 404) -> tuple[str, str]:
    """Two texts of about this similarity: k isolated replacements of n words share n-4-5k of n-4+5k shingles."""
    original = words(generator, length)
    total = length - 4
    spoilt = round(total * (1 - similarity_wanted) / (1 + similarity_wanted) / 5)
    places = generator.sample(range(4, length - 5, 5), spoilt)
    return " ".join(original), " ".join(replaced(original, places, generator))


def corpus() -> tuple[list[dict[str, str]], set[frozenset[str]]]:
    """260 documents and the clusters that near_dedup with its defaults must find in them.

    40 families of 1 to 5 copies at Jaccard similarities of 0.86 to 0.98 with the original (found with a probability of
    0.98 and more each, and the seed is fixed), 20 pairs at 0.45 that must stay apart, and single documents. Dates and
    qualities differ, so that each keep rule names another copy.
    """
    generator = random.Random(20240531)
    documents: list[dict[str, str]] = []
    clusters: set[frozenset[str]] = set()

    def add(name: str, text: str) -> None:
        day = generator.randrange(1, 29)
        documents.append({"id": name, "text": text, "date": f"2024-{generator.randrange(1, 13):02d}-{day:02d}"})

    for family in range(40):
        original = words(generator, generator.randrange(150, 500))
        names = [f"family{family:02d}-0"]
        add(names[0], " ".join(original))
        for copy in range(1, 2 + family % 5):
            share = generator.uniform(0.002, 0.015)
            places = generator.sample(range(len(original)), max(1, int(share * len(original))))
            names.append(f"family{family:02d}-{copy}")
            add(names[-1], " ".join(replaced(original, places, generator)).capitalize() + "!")
        clusters.add(frozenset(names))
    for number in range(20):
        first, second = pair(0.45, generator)
        add(f"apart{number:02d}-0", first)
        add(f"apart{number:02d}-1", second)
    while len(documents) < 260:
        add(f"single{len(documents):03d}", " ".join(words(generator, generator.randrange(60, 400))))
    generator.shuffle(documents)
    return documents, clusters
