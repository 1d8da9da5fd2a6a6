"""How many rows each group of packed documents fills: counted once, cached on disk, and shared by the processes of a run.

To find a packed row by its number one must know how many rows each group fills (packed.py), and to know that, every group has
to be packed once: about a second for a million documents. What is kept is not the packing, which is as large as the documents'
offsets and made again in a moment where a step needs it, but these numbers, 16 bytes for every 65,000 documents:

    FOLDER/FINGERPRINT.json      {"counts": [[rows of each group], [places of each group]], "checksum"}

The fingerprint is of all that they follow from: the source's files, length, method, key, and the version of the packing. A file
that is damaged or not there is made again; whoever uses the numbers compares each group that it packs with them.

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

Counts = NDArray[np.int64]  # [2, groups]: rows, places that hold a token
DIGITS = 24


def _alone(counts: Counts) -> Counts:
    return counts


@dataclass(frozen=True)
class PackIndex:
    """Where the numbers are kept (None: nowhere), and by which of how many processes they are counted."""

    folder: Path | None = None
    rank: int = 0
    world: int = 1
    total: Callable[[Counts], Counts] = _alone

    def counts(self, made_from: object, groups: int, count: Callable[[int], tuple[int, int]]) -> Counts:
        """Rows and places of every group; `count` packs one to find out, if that is not known."""
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
        kept = read_json(path)
        whole = kept["checksum"] == content_hash(kept["counts"], DIGITS)
        counts = np.array(kept["counts"], dtype=np.int64)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return counts if whole and counts.shape == (2, groups) else None
