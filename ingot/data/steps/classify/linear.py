"""The linear text classifier of fastText: the mean of feature vectors, times one vector for each class.

    h = mean over the features f of the text of  rows[f]                    p = softmax(outputs · h)

Features (Joulin et al. 2016, "Bag of tricks for efficient text classification"; Bojanowski et al. 2016; see features.py):
    words              of the vocabulary; a word is what stands between blanks, tabs, newlines, NUL; `</s>` ends a text
    word n-grams       2 to `word_ngrams` words in a row, hashed into `buckets` rows
    character n-grams  `min_characters` to `max_characters` letters of `<word>`, hashed into the same rows

Invariant: the probabilities are those that fastText gives for the text on one line (newlines as blanks).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from ingot.data.steps.classify.features import fill_slots, mean_rows
from ingot.data.text.texts import Texts

Number = TypeVar("Number", bound=np.generic)
Loss = Literal["softmax", "tree", "sigmoid"]
FLOOR = 1e-5  # fastText adds it to a probability before it takes the logarithm


def frozen(array: NDArray[Number]) -> NDArray[Number]:
    """The array as one that cannot be written to: numba compiles a kernel again for each
    combination of writable and read-only arrays."""
    view = array.view()
    view.flags.writeable = False
    return view


@dataclass(frozen=True)
class LinearModel:
    """A classifier that can be scored. Rows of the vocabulary come first, then those of the buckets."""

    labels: tuple[str, ...]
    vocabulary: Texts
    rows: NDArray[np.float32]
    outputs: NDArray[np.float32]
    word_ngrams: int = 1
    min_characters: int = 0
    max_characters: int = 0
    buckets: int = 0
    bucket_rows: NDArray[np.int32] | None = None  # by bucket its row behind the vocabulary, or -1: of a pruned model
    loss: Loss = "softmax"
    tree: NDArray[np.int32] | None = None  # children (left, right) of the inner nodes: of hierarchical softmax

    @cached_property
    def slots(self) -> NDArray[np.int32]:
        """The vocabulary as a hash table."""
        slots = np.full(1 << (2 * len(self.vocabulary) + 1).bit_length(), -1, np.int32)
        fill_slots(frozen(self.vocabulary.data), frozen(self.vocabulary.offsets), slots)
        return slots

    @cached_property
    def marks(self) -> NDArray[np.uint8]:
        """One bit a bucket: small enough for the cache, where `bucket_rows` is not."""
        return (
            np.zeros(0, np.uint8) if self.bucket_rows is None else np.packbits(self.bucket_rows >= 0, bitorder="little")
        )

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """The sizes that the kernels need: longest word n-gram, shortest and longest character n-gram, buckets."""
        return (self.word_ngrams, self.min_characters, self.max_characters, self.buckets)

    def hidden(
        self, data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """The mean feature vector of every span of bytes."""
        hidden = np.zeros((len(starts), self.rows.shape[1]), np.float32)
        bucket_rows = np.zeros(0, np.int32) if self.bucket_rows is None else self.bucket_rows
        vocabulary = self.vocabulary
        mean_rows(
            frozen(data),
            frozen(starts),
            frozen(ends),
            frozen(vocabulary.data),
            frozen(vocabulary.offsets),
            frozen(self.slots),
            frozen(bucket_rows),
            frozen(self.marks),
            self.sizes,
            frozen(self.rows),
            hidden,
        )
        return hidden

    def probabilities(self, hidden: NDArray[np.float32]) -> NDArray[np.float32]:
        """By text and class."""
        scores = hidden @ self.outputs.T
        if self.loss == "softmax":
            raised = np.exp(scores - scores.max(axis=1, keepdims=True))
            return np.asarray(raised / raised.sum(axis=1, keepdims=True))
        if self.loss == "sigmoid":  # fastText uses a table with steps of 1/32
            table = 1 / (1 + np.exp(-np.floor(scores * 32) / 32))
            return np.where(scores < -8, 0, np.where(scores > 8, 1, table)).astype(np.float32)
        sigmoid = 1 / (1 + np.exp(-scores))
        assert self.tree is not None
        leaves = len(self.labels)
        nodes = np.ones((2 * leaves - 1, len(hidden)), np.float32)
        for node in range(len(self.tree) - 1, -1, -1):  # from the root down
            left, right = self.tree[node]
            above = nodes[leaves + node]
            nodes[left] = above * (1 - sigmoid[:, node] + FLOOR)
            nodes[right] = above * (sigmoid[:, node] + FLOOR)
        return np.minimum(nodes[:leaves].T, 1)

    def score(self, texts: Texts) -> NDArray[np.float32]:
        """The probabilities of every text: rows are texts, columns are `labels`."""
        return self.probabilities(self.hidden(texts.data, texts.offsets[:-1], texts.offsets[1:]))
