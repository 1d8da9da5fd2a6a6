"""What the leading rank of a divided engine says to the others: which part of the model's work to do next, never why.

Each command goes over a pipe; the tensors that belong to it follow as collectives of the group, in this order:

    MakeCaches    –
    CacheBudget   the smallest number of bytes that a rank has for caches: one minimum over the ranks
    Hidden        whole numbers of a pass, from rank 0; then the sums inside the layers
    Read          tokens, from rank 0; then the sums inside the layers
    Project       states, from rank 0; then the columns of all ranks
    CopyCaches    –
    ClearCaches   –
    Load          tensor after tensor of the whole state, from rank 0; then what every rank has kept of it

Shapes: B rows, T tokens of a row, R pages of a row.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ingot.inference.memory import Copies, CopyKind
from ingot.model.mixers.cache import CacheShape


@dataclass(frozen=True)
class MakeCaches:
    """Make empty caches of this size."""

    shape: CacheShape


@dataclass(frozen=True)
class CacheBudget:
    """Say how much memory there is for caches."""


@dataclass(frozen=True)
class Hidden:
    """Run the blocks over [tokens B·T | positions B·T | slots B | lengths B | pages B·R]; lengths if some rows are padded."""

    rows: int
    tokens: int
    pages: int
    padded: bool
    reach: int

    @property
    def sizes(self) -> tuple[int, ...]:
        """Of the parts."""
        area = self.rows * self.tokens
        return area, area, self.rows, self.rows * self.padded, self.rows * self.pages


@dataclass(frozen=True)
class Read:
    """Run the blocks over whole texts [B, T], without caches."""

    shape: tuple[int, ...]


@dataclass(frozen=True)
class Project:
    """Multiply states of this shape with the head."""

    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True)
class CopyCaches:
    """Copy slots or pages."""

    kind: CopyKind
    copies: Copies


@dataclass(frozen=True)
class ClearCaches:
    """Zeros in all caches."""


@dataclass(frozen=True)
class Load:
    """Take new weights."""


Command = MakeCaches | CacheBudget | Hidden | Read | Project | CopyCaches | ClearCaches | Load
