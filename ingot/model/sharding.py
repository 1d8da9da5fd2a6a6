"""Says how a part of the model is divided over tensor-parallel ranks: data beside the part that one function applies.

A part whose class has a `sharding()` is cut along its inner channels or heads by train/parallel/tensor.py; any other part is the
same on all ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Sharding:
    """How one part is cut: names of its layers or parameters, and what its configuration becomes on one rank."""

    rows: tuple[str, ...]  # cut by what they give out, section by section
    columns: tuple[str, ...]  # cut by what they read; their results are summed over the ranks
    counts: tuple[str, ...]  # numbers in the part's configuration that are divided by the number of ranks
    norms: tuple[str, ...] = ()  # whole on every rank, but applied to its heads only
    # where the gradients of what all ranks hold alike are summed: before the part, before its heads (`to_heads`), or in the part
    enter: Literal["input", "heads", "inside"] = "input"
