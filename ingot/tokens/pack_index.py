"""Counts the rows that each group of packed documents fills: once, cached on disk, shared by the processes of a run.

To find a packed row by its number one must know how many rows each group fills (packed.py), and to know that, every group has
to be packed once: about a second for a million documents. The cache does not hold the packing, which is as large as the
documents' offsets and made again in a moment where a step needs it, but these numbers, 16 bytes for every 65,000 documents:

    FOLDER/FINGERPRINT.json      {"counts": [[rows of each group], [positions of each group]], "checksum"}

The fingerprint covers all that they depend on: the source's files, length, method, key, and the version of the packing. A file
that is damaged or missing is made again; packed.py compares each group that it packs with these numbers.

In several processes the first one reads and writes, and each counts its share of the groups. `total` adds up an array over all of
them, and is called by all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ingot.workspace.config import content_hash
from ingot.workspace.files import read_json, write_json

Counts = NDArray[np.int64]  # [2, groups]: rows, positions that hold a token
DIGITS = 24


def _alone(counts: Counts) -> Counts:
    return counts


@dataclass(frozen=True)
class PackIndex:
    """Where the numbers are cached (None: nowhere), and which of how many processes this is."""

    folder: Path | None = None
    rank: int = 0
    world: int = 1
    total: Callable[[Counts], Counts] = _alone

    def counts(self, made_from: object, groups: int, count: Callable[[int], tuple[int, int]]) -> Counts:
        """Rows and positions of every group; `count` packs one group to count them where the cache does not know."""
        path = None if self.folder is None else self.folder / f"{content_hash(made_from, DIGITS)}.json"
        found = _read(path, groups) if path is not None and self.rank == 0 else None
        if self.total(np.array([[int(found is not None)]]))[0, 0]:
            return self.total(np.zeros((2, groups), dtype=np.int64) if found is None else found)
        own = np.zeros((2, groups), dtype=np.int64)
        for number in range(self.rank, groups, self.world):
            own[:, number] = count(number)
        counts = self.total(own)
        if path is not None and self.rank == 0:
            write_json(path, {"counts": counts.tolist(), "checksum": content_hash(counts.tolist(), DIGITS)})
        return counts


def _read(path: Path, groups: int) -> Counts | None:
    """The numbers of this file, if it is there and whole."""
    try:
        cached = read_json(path)
        whole = cached["checksum"] == content_hash(cached["counts"], DIGITS)
        counts = np.array(cached["counts"], dtype=np.int64)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return counts if whole and counts.shape == (2, groups) else None
