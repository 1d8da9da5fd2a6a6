"""Shards for tests of the data order: small random documents, or a given stream written as it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ingot.tokens.shards import DOCUMENTS_FILE, QUALITY_FILE, SOURCE_FILES, TOKENS_FILE, write_index
from ingot.workspace.files import file_sha256

VOCABULARY = 997


@dataclass(frozen=True)
class Phase:
    """A phase as a recipe gives it."""

    until: float | None = None
    weights: Mapping[str, float] = field(default_factory=dict)
    until_tokens: int | None = None


def write_lengths(folder: Path, lengths: Mapping[str, Sequence[int] | NDArray[np.int64]], seed: int = 5) -> Path:
    """Shards whose sources have documents of these lengths: random ids from 1 on, then 0 for <|endoftext|>.

    The files are written from arrays: a million documents in a second.
    """
    generator = np.random.default_rng(seed)
    entries = {}
    for name, sizes in lengths.items():
        ends = np.cumsum(sizes)
        tokens = generator.integers(1, VOCABULARY, ends[-1]).astype("<u2")
        tokens[ends - 1] = 0
        (folder / name).mkdir(parents=True)
        tokens.tofile(folder / name / TOKENS_FILE)
        np.save(folder / name / DOCUMENTS_FILE, np.stack([ends - sizes, 3 * (np.asarray(sizes) - 1)]))
        np.save(folder / name / QUALITY_FILE, np.full(len(sizes), 0.5, dtype=np.float32))
        entries[name] = {
            "tokens": len(tokens),
            "documents": len(sizes),
            "bytes": int(3 * (len(tokens) - len(sizes))),
            "dtype": "<u2",
            "sha256": {file: file_sha256(folder / name / file) for file in SOURCE_FILES},
        }
    token_bytes = np.full(VOCABULARY, 3, dtype=np.int32)
    token_bytes[0] = 0
    write_index(folder, entries, token_bytes, end_of_text=0)
    return folder
