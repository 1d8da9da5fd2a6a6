"""Hugging Face tensors of a model in memory, as an export would write them."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from ingot.checkpoints.families.family import Layout
from ingot.checkpoints.tensors import MemoryTensors
from ingot.checkpoints.translate import to_tensors


def written_tensors(layout: Layout, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """All tensors of the layout from the parameters (or gradients) in `state`."""
    theirs = to_tensors(MemoryTensors(state), layout, state, "the test")
    return {name: theirs.rows(name, 0, entry.rows) for name, entry in theirs.entries.items()}
