"""What all layers of one forward pass share.

A pass is one of two things:

* whole sequences (training, scoring): rows hold packed documents, numbered by `documents_BT` (−1 is padding, and
  `positions_BT` restarts with each document), or one document each where there are no numbers;
* a continuation with caches (sampling): row b goes on where slot `slots_B[b]` stopped, at `positions_BT`; the row's first
  `lengths_B[b]` tokens are real (all of them if `lengths_B` is None), and every position is below `reach`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from torch import Tensor

from ingot.model.mixers import mask
from ingot.model.record import Record

T = TypeVar("T")


class Context:
    """Positions, documents, slots, and whatever is computed from them once for all layers."""

    def __init__(
        self,
        positions_BT: Tensor,
        documents_BT: Tensor | None = None,
        slots_B: Tensor | None = None,
        lengths_B: Tensor | None = None,
        reach: int | None = None,
        record: Record | None = None,
    ) -> None:
        self.positions_BT, self.documents_BT = positions_BT, documents_BT
        self.slots_B, self.lengths_B, self.reach = slots_B, lengths_B, reach
        self.record = record
        self.selected: Tensor | None = None  # DSA: the keys that the last indexer chose, for layers that share them
        self._once: dict[Hashable, Any] = {}

    def once(self, key: Hashable, compute: Callable[[], T]) -> T:
        """`compute()` for the first layer that asks, the same object for the others."""
        if key not in self._once:
            self._once[key] = compute()
        return self._once[key]

    @property
    def spans(self) -> list[mask.Span] | None:
        """The documents' places in the flattened batch; None where every row is one document."""
        documents = self.documents_BT
        return None if documents is None else self.once("spans", lambda: mask.document_spans(documents))
