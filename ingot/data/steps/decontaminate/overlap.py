"""Finds which share of an eval's word n-grams a document has.

    share(document, text) = sum of weights of the text's n-grams in the document / sum over all its n-grams

A text is a string of an eval: its question, a choice, its passage. A document goes if it shares an n-gram with one
(`min_share: 0`) or at least this share of its n-grams; the score of an eval is that of its best text.

- A text shorter than n words but with `min_words` is one shorter n-gram: all of it. Only the longest text of an
  eval, though: a choice such as "the United States of America" is no evidence.
- N-grams with hardly a word in them ("0 1 2 3 4 5 6 7") are no evidence and left out (`min_plain_words`).
- N-grams in more than `max_common` documents are boilerplate and left out. This, and weights by rarity in the
  documents, needs a first pass that counts (counting.py).

A search that cannot find anything is an error, not a quiet zero.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow
from numpy.typing import NDArray

from ingot.data.contamination.counting import NgramCounts, corpus_weights
from ingot.data.contamination.evals import EvalTexts
from ingot.data.contamination.matches import MOST_MATCHES, DocumentMatches, columns, joined
from ingot.data.contamination.ngrams import Hits, NgramSet, all_windows, ngram_set, scan
from ingot.data.contamination.words import word_spans, words_of
from ingot.data.native import loop
from ingot.data.text.texts import Texts
from ingot.workspace.errors import DataError


@dataclass(frozen=True)
class OverlapIndex:
    """The n-grams of all eval texts."""

    names: list[tuple[str, str]]  # set and id of each eval
    evals: NDArray[np.int64]  # the eval of each text
    ngrams: NgramSet  # its owners are texts
    searched: NDArray[np.bool_]  # by eval: it has n-grams; the others are too short to be found

    def say(self) -> list[str]:
        """What will be searched for, and what cannot be."""
        searched, missing = int(self.searched.sum()), int((~self.searched).sum())
        ngrams = f"{len(self.ngrams):,} n-grams of {searched:,} evals"
        return [f"{ngrams}; {missing:,} evals are too short to be searched for"]

    def sizes(self) -> dict[str, tuple[int, int]]:
        """By eval set: its evals, and how many of them are searched for."""
        every = Counter(name for name, _ in self.names)
        found = Counter(self.names[number][0] for number in np.flatnonzero(self.searched).tolist())
        return {name: (count, found[name]) for name, count in every.items()}


@dataclass(frozen=True)
class NgramWeights:
    """What each n-gram counts, and all n-grams of each text together. A weight of 0: not evidence."""

    ngrams: NDArray[np.float64]
    texts: NDArray[np.float64]


def build_index(found: Iterable[EvalTexts], ngram_words: int, min_words: int, min_plain_words: int) -> OverlapIndex:
    """Collect the n-grams of the evals."""
    names: list[tuple[str, str]] = []
    texts: list[str] = []
    owners: list[int] = []
    for item in found:
        texts += item.texts
        owners += [len(names)] * len(item.texts)
        names.append((item.set, item.id))
    owner = np.array(owners, np.int64)
    words = words_of(Texts.of(texts), "letters")
    lengths = np.diff(words.offsets)
    longest = np.zeros(len(names), np.int64)
    np.maximum.at(longest, owner, lengths)
    searched_whole = (lengths == longest[owner]) & (lengths >= min_words)
    sizes = np.where(searched_whole, np.minimum(ngram_words, lengths), ngram_words)
    values, text_of, starts = all_windows(words.hashes, words.offsets, sizes)
    plain = np.concatenate([[0], np.cumsum(words.plain, dtype=np.int64)])
    usable = plain[starts + sizes[text_of]] - plain[starts] >= min_plain_words
    values, text_of = values[usable], text_of[usable]
    searched = np.zeros(len(names), bool)
    searched[owner[text_of]] = True
    if not searched.any():
        raise DataError(
            f"none of the {len(names):,} evals has {min_words} words, {min_plain_words} of them of "
            "letters: nothing can be found",
            place="decontaminate",
            fix="give longer eval texts, or lower min_words and min_plain_words",
        )
    return OverlapIndex(names, owner, ngram_set(values, text_of, sizes[text_of]), searched)


def ngram_weights(
    index: OverlapIndex, counts: NgramCounts | None, *, by_rarity: bool, max_common: int | None
) -> NgramWeights:
    """What n-grams count: by how rare they are, if asked; nothing, if more than `max_common` documents have them."""
    weights = np.ones(len(index.ngrams))
    if counts is not None and by_rarity:
        weights = corpus_weights(len(index.evals), index.ngrams.frequencies(), counts)
    if counts is not None and max_common is not None:
        weights[counts.frequencies > max_common] = 0
    by_pair = np.repeat(weights, index.ngrams.frequencies())
    totals = np.bincount(index.ngrams.evals, by_pair, minlength=len(index.evals))
    return NgramWeights(weights, totals.astype(np.float64))


@loop
def _shares(ids, weights, starts, owners, totals, sums, touched) -> Any:  # type: ignore[no-untyped-def]
    """The share of each text that these n-grams make up, in `sums` (0 before; the caller empties it again); the texts
    are listed in `touched`, and their number is returned."""
    count = 0
    for ngram in ids:
        for pair in range(starts[ngram], starts[ngram + 1]):
            owner = owners[pair]
            if sums[owner] == 0:
                touched[count] = owner
                count += 1
            sums[owner] += weights[ngram]
    for index in range(count):
        sums[touched[index]] /= totals[touched[index]]
    return count


def match_texts(index: OverlapIndex, weights: NgramWeights, texts: Texts) -> dict[str, pyarrow.Array]:
    """The columns of the step for these texts."""
    hits = hits_of(index, texts)
    hits = hits.of(weights.ngrams[hits.ids] > 0)
    sums, touched = np.zeros(len(index.evals)), np.empty(len(index.evals), np.int64)
    found = []
    rows, firsts = np.unique(hits.documents, return_index=True)
    lasts = np.append(firsts, len(hits))[1:]
    for row, first, last in zip(rows.tolist(), firsts.tolist(), lasts.tolist(), strict=True):
        tables = (weights.ngrams, index.ngrams.starts, index.ngrams.evals, weights.texts)
        shared = touched[: _shares(np.unique(hits.ids[first:last]), *tables, sums, touched)]
        matches = best_matches(index, shared, sums[shared])
        sums[shared] = 0
        words = word_spans(texts, row, "letters")
        positions, sizes = hits.positions[first:last], hits.sizes[first:last]
        spans = list(zip(words[positions, 0].tolist(), words[positions + sizes - 1, 1].tolist(), strict=True))
        text = texts[row][slice(*spans[0])]
        found.append(DocumentMatches(row, text, last - first, joined(spans), matches))
    return columns(len(texts), found)


def best_matches(index: OverlapIndex, texts: NDArray[np.int64], shares: NDArray[np.float64]) -> list[dict[str, Any]]:
    """The evals of these texts, those with the largest share first."""
    matches: dict[int, dict[str, Any]] = {}
    for best in np.lexsort((texts, -shares)).tolist():
        number = int(index.evals[texts[best]])
        name, own = index.names[number]
        matches.setdefault(number, {"set": name, "eval": own, "score": float(min(shares[best], 1.0))})
        if len(matches) == MOST_MATCHES:
            break
    return list(matches.values())


def hits_of(index: OverlapIndex, texts: Texts) -> Hits:
    """Every n-gram of the evals in these texts."""
    words = words_of(texts, "letters")
    return scan(words.hashes, words.offsets, index.ngrams)
