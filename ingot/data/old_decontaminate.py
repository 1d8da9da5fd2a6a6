"""Remove documents that hold text of the evals: a shared n-gram of words is a leak.

Every eval text becomes its word n-grams (lower case, punctuation dropped); a text shorter than n words but with at
least `min_words` becomes one shorter n-gram, its whole self. N-grams with hardly a word in them ("0 1 2 3 4 5 6 7") are
no evidence and left out. A document goes if any of these occurs in it. N-grams are
compared by 64-bit hashes: a million of them against ten million places give one false hit in two million runs. The
place of each hit is kept, so that a person can judge it.

A search that cannot find anything is an error, not a quiet zero: no file, or no eval text long enough to search for.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ingot.data.config import DecontaminateStep
from ingot.data.document import KEEP, Document, Verdict
from ingot.data.read import Unreadable, decode, read_bytes, rows
from ingot.data.shingles import WORD, Hashes, hash_words, window_hashes, words_of
from ingot.data.sources import ROWS_SUFFIXES, matching_files
from ingot.data.workers import Workers
from ingot.workspace.errors import DataError
from ingot.workspace.progress import Progress

HOLE = re.compile(r"\{[^{}\s]*\}")


class Hit(NamedTuple):
    """An eval n-gram in a document: the position of its first word, its number of words, its hash."""

    position: int
    size: int
    ngram: int


def decontaminate(
    documents: Sequence[Document], step: DecontaminateStep, workers: Workers, progress: Progress
) -> list[Verdict]:
    """Remove every document that shares an n-gram with an eval text."""
    ngrams, texts, passed_over = eval_ngrams(step)
    count = sum(map(len, ngrams.values()))
    progress.say(f"decontaminate: {count:,} n-grams of {texts:,} eval texts; {passed_over:,} texts are too short")
    found = workers.map(find_hits, [document.text for document in documents], len, ngrams)

    common: set[int] = set()
    if step.max_common is not None:
        documents_with = Counter(ngram for hits in found for ngram in {hit.ngram for hit in hits})
        common = {ngram for ngram, count in documents_with.items() if count > step.max_common}
        if common:
            progress.say(
                f"decontaminate: {len(common):,} n-grams are in more than {step.max_common} documents: no leak"
            )

    verdicts = [KEEP] * len(documents)
    for index, hits in enumerate(found):
        leaks = [hit for hit in hits if hit.ngram not in common]
        if leaks:
            verdicts[index] = leak_verdict(documents[index].text, leaks)
    return verdicts


def leak_verdict(text: str, hits: list[Hit]) -> Verdict:
    """The verdict on a document with hits: what it shares, how often, and where."""
    first = " ".join(words_of(text)[hits[0].position : hits[0].position + hits[0].size])
    more = f" and {len(hits) - 1} more n-grams" if len(hits) > 1 else ""
    return Verdict("shares with an eval", f"“{first}”{more}", spans=hit_spans(text, hits))


def eval_ngrams(step: DecontaminateStep) -> tuple[dict[int, Hashes], int, int]:
    """The n-grams to search for (sorted hashes by number of words), and how many texts gave some and how many none."""
    collected: dict[int, list[Hashes]] = {}
    taken = passed_over = 0
    for text in eval_texts(step):
        words = words_of(text)
        size = min(step.ngram_words, len(words))
        usable = plain_enough(words, size, step.min_plain_words) if len(words) >= step.min_words else []
        if any(usable):
            taken += 1
            collected.setdefault(size, []).append(window_hashes(hash_words(words), size)[usable])
        else:
            passed_over += 1
    if not collected:
        raise DataError(
            f"none of the {passed_over:,} eval texts has {step.min_words} words, {step.min_plain_words} of them of "
            "letters: nothing can be found",
            place="decontaminate",
            fix="give longer eval texts, or lower min_words and min_plain_words",
        )
    return {size: np.unique(np.concatenate(arrays)) for size, arrays in sorted(collected.items())}, taken, passed_over


def plain_enough(words: list[str], size: int, minimum: int) -> list[bool]:
    """For every window of `size` words, whether at least `minimum` of them are two or more letters and nothing else."""
    plain = list(accumulate((len(word) > 1 and word.isalpha() for word in words), initial=0))
    return [plain[start + size] - plain[start] >= minimum for start in range(len(words) - size + 1)]


def eval_texts(step: DecontaminateStep) -> Iterator[str]:
    """The fixed parts of the inline prompts, then every text of the files."""
    for template in step.texts:
        yield from (part for part in HOLE.split(template) if part.strip())
    for pattern in step.against:
        for path in matching_files(pattern, place="decontaminate: against"):
            yield from file_texts(path)


def file_texts(path: Path) -> Iterator[str]:
    """Every string of an eval file. A file that cannot be read is fatal here: a skipped eval would be a silent leak."""
    try:
        if path.name.lower().endswith(ROWS_SUFFIXES):
            for number, row in rows(str(path)):
                if isinstance(row, Unreadable):
                    raise Unreadable(f"row {number}:", str(row))
                yield from strings(row)
        else:
            yield decode(read_bytes(str(path)))
    except Unreadable as error:
        raise DataError(f"eval file: {error}", place=str(path), fix="repair it or take it off `against`") from None


def strings(value: Any) -> Iterator[str]:
    """All strings inside a JSON-like value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)


def find_hits(texts: list[str], ngrams: dict[int, Hashes]) -> list[list[Hit]]:
    """For every text, the eval n-grams in it, from left to right."""
    return [text_hits(text, ngrams) for text in texts]


def text_hits(text: str, ngrams: dict[int, Hashes]) -> list[Hit]:
    """The eval n-grams in one text, from left to right."""
    words = hash_words(words_of(text))
    hits: list[Hit] = []
    for size, wanted in ngrams.items():
        if len(words) < size:
            continue
        windows = window_hashes(words, size)
        places = np.searchsorted(wanted, windows)
        places[places == len(wanted)] = 0
        positions = np.flatnonzero(wanted[places] == windows)
        hits += [Hit(position, size, int(windows[position])) for position in positions.tolist()]
    return sorted(hits)


def hit_spans(text: str, hits: list[Hit]) -> tuple[tuple[int, int], ...]:
    """The characters that the hits cover, overlapping hits joined."""
    places = [match.span() for match in WORD.finditer(text)]
    if len(places) != len(words_of(text)):  # lower-casing can change the number of words outside of Latin script
        return ()
    spans: list[tuple[int, int]] = []
    for hit in hits:
        start, end = places[hit.position][0], places[hit.position + hit.size - 1][1]
        if spans and start <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
        else:
            spans.append((start, end))
    return tuple(spans)
