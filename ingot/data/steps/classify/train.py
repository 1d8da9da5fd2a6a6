"""Trains a linear text classifier: fastText's method, seeded and the same on every machine (`ingot classifier train`).

For each text with its features f1 … fn and its class y, at the learning rate r:
    h = mean of rows[f]       p = softmax(outputs · h)       g = r (onehot(y) − p)
    rows[f] += outputsᵀ g / n       outputs += g hᵀ
r falls in a straight line to 0; the texts are shuffled in every epoch. Rows begin uniform in ±1/dimension, outputs at 0
(Joulin et al. 2016). Buckets that no training text hits are left out: the file is as large as the data needs, and an
unseen n-gram says nothing instead of adding noise.

Invariant: one thread and one seed: the same texts in the same order give the same bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingot.data.native import Bytes, Marks, Offsets, Sizes, hash_each, kernel
from ingot.data.steps.classify.config import TrainConfig
from ingot.data.steps.classify.features import (
    CHUNK,
    END,
    MAX_WORD_NGRAMS,
    next_number,
    ngram_rows,
    subword_rows,
)
from ingot.data.steps.classify.linear import LinearModel, frozen
from ingot.data.steps.classify.report import report
from ingot.data.steps.classify.store import bytes_as_texts, save_model
from ingot.data.text.texts import Texts
from ingot.workspace.errors import DataError


@kernel
def append(ids: Sizes, count: int, some: Sizes, found: int) -> int:
    """Append `found` numbers, unless `ids` is empty; returns the new count."""
    if len(ids):
        for index in range(found):
            ids[count + index] = some[index]
    return count + found


@kernel
def collect(
    data: Bytes,
    text_offsets: Offsets,
    words: Bytes,
    offsets: Offsets,
    slots: Sizes,
    bucket_rows: Sizes,
    marks: Bytes,
    sizes: tuple[int, int, int, int],
    ids: Sizes,
    bounds: Offsets,
) -> int:
    """The feature numbers of all texts, end to end; with an empty `ids` they are only counted."""
    known = len(offsets) - 1
    most = sizes[2]
    some = np.zeros(CHUNK * (most + 1) + MAX_WORD_NGRAMS + 1, np.int32)
    letters = np.zeros(CHUNK + 4 * most + 2, np.uint8)
    recent = np.zeros(MAX_WORD_NGRAMS, np.uint64)
    count = 0
    for text in range(len(text_offsets) - 1):
        at, end, read = text_offsets[text], text_offsets[text + 1], 0
        finished = False
        while not finished:
            first, at, value, number = next_number(data, at, end, words, offsets, slots)
            finished = first == at
            if number >= 0:
                if len(ids):
                    ids[count] = number
                count += 1
            if most > 0 and not finished:
                for begin in range(first - 1, at + 1, CHUNK):
                    stop = min(begin + CHUNK, at + 1)
                    found = subword_rows(data, first, at, begin, stop, known, sizes, bucket_rows, marks, letters, some)
                    count = append(ids, count, some, found)
            if sizes[0] > 1:
                found = ngram_rows(recent, read, value, known, sizes, bucket_rows, marks, some)
                count = append(ids, count, some, found)
                read += 1
        bounds[text + 1] = count
    return count


@kernel
def descend(
    ids: Sizes,
    bounds: Offsets,
    labels: Sizes,
    order: Offsets,
    rows: NDArray[np.float32],
    outputs: NDArray[np.float32],
    rate: float,
    losses: NDArray[np.float64],
) -> None:
    """Stochastic gradient descent over `order`, text by text; the learning rate falls to 0 at its end."""
    classes, width = outputs.shape
    hidden, slope = np.zeros(width, np.float32), np.zeros(width, np.float32)
    scores = np.zeros(classes, np.float32)
    for step in range(len(order)):
        text = order[step]
        first, last = bounds[text], bounds[text + 1]
        if first == last:
            continue
        share = np.float32(1.0 / (last - first))
        now = np.float32(rate * (1.0 - step / len(order)))
        for column in range(width):
            hidden[column] = slope[column] = 0
        for index in range(first, last):
            row = ids[index]
            for column in range(width):
                hidden[column] += rows[row, column]
        for column in range(width):
            hidden[column] *= share
        highest = np.float32(-np.inf)
        for label in range(classes):
            total = np.float32(0)
            for column in range(width):
                total += outputs[label, column] * hidden[column]
            scores[label] = total
            highest = max(highest, total)
        norm = np.float32(0)
        for label in range(classes):
            scores[label] = np.exp(scores[label] - highest)
            norm += scores[label]
        for label in range(classes):
            probability = scores[label] / norm
            wanted = label == labels[text]
            if wanted:
                losses[step] = -np.log(max(probability, np.float32(1e-12)))
            push = now * (np.float32(wanted) - probability)
            for column in range(width):
                slope[column] += push * outputs[label, column]
                outputs[label, column] += push * hidden[column]
        for column in range(width):
            slope[column] *= share
        for index in range(first, last):
            row = ids[index]
            for column in range(width):
                rows[row, column] += slope[column]


def vocabulary_of(texts: Texts, min_count: int) -> Texts:
    """The words that occur often enough, most frequent first, and the end of a text."""
    counts: dict[bytes, int] = {}
    for start, end in zip(texts.offsets[:-1], texts.offsets[1:], strict=True):
        for word in texts.data[start:end].tobytes().replace(b"\0", b" ").split():
            counts[word] = counts.get(word, 0) + 1
    counts.pop(END, None)
    frequent = sorted((word for word, count in counts.items() if count >= min_count), key=lambda w: (-counts[w], w))
    return bytes_as_texts([END, *frequent])


def features(model: LinearModel, texts: Texts) -> tuple[Sizes, Offsets]:
    """The feature numbers of all texts end to end, and where each text's begin."""
    bounds = np.zeros(len(texts) + 1, np.int64)
    bucket_rows = np.zeros(0, np.int32) if model.bucket_rows is None else model.bucket_rows
    vocabulary = model.vocabulary
    ids = np.zeros(0, np.int32)
    for _ in range(2):  # count, then fill
        count = collect(
            frozen(texts.data),
            frozen(texts.offsets),
            frozen(vocabulary.data),
            frozen(vocabulary.offsets),
            frozen(model.slots),
            frozen(bucket_rows),
            frozen(model.marks),
            model.sizes,
            ids,
            bounds,
        )
        if len(ids) == 0:
            ids = np.zeros(count, np.int32)
    return ids, bounds


def train(texts: Texts, labels: list[str], options: TrainConfig) -> tuple[LinearModel, list[float]]:
    """A model of the texts' labels, and the mean loss of every epoch."""
    classes = sorted(set(labels))
    if len(classes) < 2:
        raise DataError(
            f"a classifier needs at least two classes, there is {len(classes)}", fix="add files with another label"
        )
    random = np.random.Generator(np.random.PCG64(options.seed))
    empty = np.zeros((0, options.dimension), np.float32)
    model = LinearModel(
        labels=tuple(classes),
        vocabulary=vocabulary_of(texts, options.min_count),
        rows=empty,
        outputs=np.zeros((len(classes), options.dimension), np.float32),
        word_ngrams=options.word_ngrams,
        min_characters=options.min_characters,
        max_characters=options.max_characters,
        buckets=options.buckets,
    )
    ids, bounds = features(model, texts)
    known = len(model.vocabulary)
    seen = np.zeros(known + options.buckets, bool)
    seen[:known] = True
    seen[ids] = True
    row_of = np.cumsum(seen, dtype=np.int64) - 1
    ids = row_of[ids].astype(np.int32)
    bucket_rows = np.where(seen[known:], row_of[known:] - known, -1).astype(np.int32)
    scale = 1 / options.dimension
    rows = random.uniform(-scale, scale, (int(seen.sum()), options.dimension)).astype(np.float32)
    outputs = np.zeros((len(classes), options.dimension), np.float32)
    order = np.concatenate([random.permutation(len(texts)) for _ in range(options.epochs)])
    losses = np.zeros(len(order))
    numbers = {label: number for number, label in enumerate(classes)}
    targets = np.array([numbers[label] for label in labels], np.int32)
    descend(ids, bounds, targets, order, rows, outputs, options.learning_rate, losses)
    model = replace(model, rows=rows, outputs=outputs, bucket_rows=bucket_rows)
    return model, [float(part.mean()) for part in losses.reshape(options.epochs, -1)]


def held_out(texts: Texts, share: float, seed: int) -> Marks:
    """Which texts are held out of training: decided by the text itself, so that copies are on one side."""
    hashes = hash_each(frozen(texts.data), frozen(texts.offsets), np.uint64(seed))
    return np.asarray(hashes < np.uint64(min(share * 2.0**64, 2.0**64 - 4096)))


def train_and_report(
    pairs: Sequence[tuple[str, str]], options: TrainConfig, out: Path, recalls: Sequence[float] = (0.5, 0.9, 0.95)
) -> dict[str, Any]:
    """Train on (text, label) pairs, report on a held-out share, write the folder `out`. Returns what is written."""
    texts = [text for text, _ in pairs]
    labels = np.array([label for _, label in pairs], dtype=object)
    away = held_out(Texts.of(texts), options.held_out, options.seed)
    learnt = Texts.of([text for text, out in zip(texts, away, strict=True) if not out])
    model, losses = train(learnt, list(labels[~away]), options)
    about: dict[str, Any] = {
        "options": options.model_dump(mode="json"),
        "texts": dict(sorted(Counter(labels[~away]).items())),
        "losses": losses,
    }
    asked = away & np.isin(labels, model.labels)
    if asked.any():
        scores = model.score(Texts.of([text for text, chosen in zip(texts, asked, strict=True) if chosen]))
        about["report"] = report(model.labels, list(labels[asked]), scores, recalls)
    save_model(out, model, about)
    return about
