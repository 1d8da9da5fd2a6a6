"""States of recurrent layers, saved before drafts are read and restored where drafts are rejected.

The tokens that come after a rejected draft overwrite its keys and values. A recurrent state cannot be undone: it is copied before
the pass and restored for the rows whose drafts were not all accepted, and these rows read their accepted tokens again.

Shapes: B rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ingot.inference.memory import simple_caches
from ingot.model.mixers.cache import Cache, StateCache


class SavedStates:
    """The states of some slots, as they were when `save` was called."""

    def __init__(self, caches: Sequence[Cache | None]) -> None:
        parts = [part for cache in caches for part in simple_caches(cache)]
        self._states = [state for part in parts if isinstance(part, StateCache) for state in part.states.values()]
        self._saved: list[Tensor] = []

    @property
    def needed(self) -> bool:
        """Whether the model has states at all."""
        return bool(self._states)

    def save(self, slots_B: Tensor) -> None:
        """Copy what the rows' slots hold."""
        self._saved = [state[slots_B] for state in self._states]

    def restore(self, slots_B: Tensor, rows: Tensor) -> None:
        """Put it back for some of the rows."""
        for state, saved in zip(self._states, self._saved, strict=True):
            state[slots_B[rows]] = saved[rows]
