"""A classifier on disk: a folder with `classifier.json` (options, labels, report) and `weights.safetensors`.

    rows, outputs        float32, as in linear.py
    words, word_ends     the vocabulary: UTF-8 bytes end to end, and where each word ends
    kept, kept_rows      int32: the buckets that have a row, and which

fastText files (.bin, .ftz) are read as they are.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from ingot.data.classify.fasttext import read_fasttext
from ingot.data.classify.linear import LinearModel
from ingot.data.text.texts import Texts
from ingot.workspace.errors import ArtifactError
from ingot.workspace.files import atomic_folder, read_json, write_json

FORMAT = "ingot-classifier-1"
DESCRIPTION = "classifier.json"
WEIGHTS = "weights.safetensors"
SIZES = ("word_ngrams", "min_characters", "max_characters", "buckets")


def save_model(folder: Path, model: LinearModel, about: dict[str, Any]) -> None:
    """Write a model; the folder appears whole or not at all."""
    from safetensors.numpy import save_file

    assert model.kept is not None
    buckets = np.flatnonzero(model.kept >= 0)
    with atomic_folder(folder) as temporary:
        arrays: dict[str, np.ndarray] = {
            "rows": model.rows,
            "outputs": model.outputs,
            "words": np.ascontiguousarray(model.vocabulary.data),
            "word_ends": model.vocabulary.offsets[1:].copy(),
            "kept": buckets.astype(np.int32),
            "kept_rows": model.kept[buckets],
        }
        save_file(arrays, temporary / WEIGHTS)
        sizes = {name: getattr(model, name) for name in SIZES}
        write_json(temporary / DESCRIPTION, {"format": FORMAT, "labels": list(model.labels), **sizes, **about})


@lru_cache(maxsize=4)
def load_model(name: str) -> LinearModel:
    """A model of ours or of fastText; read once a process."""
    path = Path(name)
    if path.is_file():
        return read_fasttext(path)
    if not (path / DESCRIPTION).is_file():
        raise ArtifactError(
            "no classifier here", place=name, fix="give a folder of `ingot classifier train` or a fastText .bin or .ftz"
        )
    from safetensors.numpy import load_file

    about = read_json(path / DESCRIPTION)
    if about.get("format") != FORMAT:
        raise ArtifactError(f"unknown format {about.get('format')!r}", place=name, fix="train the classifier again")
    arrays = load_file(path / WEIGHTS)
    kept = np.full(about["buckets"], -1, np.int32)
    kept[arrays["kept"]] = arrays["kept_rows"]
    return LinearModel(
        labels=tuple(about["labels"]),
        vocabulary=Texts(arrays["words"], np.concatenate([np.zeros(1, np.int64), arrays["word_ends"]])),
        rows=arrays["rows"],
        outputs=arrays["outputs"],
        kept=kept,
        **{size: about[size] for size in SIZES},
    )
