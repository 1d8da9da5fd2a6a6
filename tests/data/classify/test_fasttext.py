"""Every kind of fastText file against the library: losses, word and character n-grams, quantised, pruned.

The files beside this one were trained by the fastText library (0.9.2) on 900 made-up sentences of three languages.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ingot.data.steps.classify.store import huffman_tree, read_fasttext
from ingot.data.text.texts import Texts

MODELS = Path(__file__).parent / "fasttext_models"
TEXTS = [
    "the cat sat on a warm mat",
    "der Hund läuft über die Straße",
    "fromage à midi",
    "",
    "unseen words ß 東京",
    "cat",
]
TEXTS += ["__label__en the", "</s> the cat", "x" * 3000, "a\tb\x00c the the the the"]


@pytest.mark.parametrize("name", ["softmax.bin", "sigmoid.bin", "tree.bin", "pruned.ftz", "whole.ftz"])
def test_equal_to_library(name: str) -> None:
    fasttext = pytest.importorskip("fasttext", reason="compares with the fastText library (ingot[data] has it)")
    library, model = fasttext.load_model(str(MODELS / name)), read_fasttext(MODELS / name)
    scores = model.score(Texts.of(TEXTS))
    for text, row in zip(TEXTS, scores, strict=True):
        labels, expected = library.predict(text, k=3)
        found = [row[model.labels.index(label.removeprefix("__label__"))] for label in labels]
        # the library adds 1e-5 to a probability before it takes the logarithm
        np.testing.assert_allclose(found, np.minimum(expected, 1), atol=1.1e-5, err_msg=f"{name}: {text[:40]!r}")


def test_huffman_tree_by_hand() -> None:
    """Counts 10, 4, 3, 2: 2 and 3 join (node 4), then 4 and 5 (node 5), then 9 and 10 (node 6, the root)."""
    assert huffman_tree([10, 4, 3, 2]).tolist() == [[3, 2], [1, 4], [5, 0]]
