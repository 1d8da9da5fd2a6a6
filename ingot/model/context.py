"""Positions, documents and cache slots of one forward pass, shared by all its layers.

A pass is one of two things:

* whole sequences (training, scoring): rows hold packed documents, numbered by `documents_BT` (−1 is padding, and
  `positions_BT` restarts with each document), or one document each where there are no numbers;
* a continuation with caches (sampling): row b goes on where slot `slots_B[b]` stopped, at `positions_BT`, which count up by
  one; its past is in the pages `pages_BR[b]` or in the slot itself (mixers/cache.py); the row's first `lengths_B[b]` tokens
  are real (all of them if `lengths_B` is None), and every position is below `reach`.

Where the tokens of whole sequences are divided over ranks (context_parallel.py), a pass has the Context of this rank's tokens,
which refers to that of the whole rows: `Context(…).part(context_parallel)`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from ingot.model.context_parallel import ContextParallel
from ingot.model.document_spans import DocumentSpan, document_spans
from ingot.model.record import Record

if TYPE_CHECKING:
    from ingot.tokens.batch import BatchMetadata

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
        metadata: BatchMetadata | None = None,
        pages_BR: Tensor | None = None,
    ) -> None:
        self.positions_BT, self.documents_BT = positions_BT, documents_BT
        self.slots_B, self.lengths_B, self.reach = slots_B, lengths_B, reach
        self.record, self.metadata, self.pages_BR = record, metadata, pages_BR
        self.context_parallel: ContextParallel | None = None
        self._rows: Context | None = None
        self.reported = False  # all layers have run: those that run again, in the backward pass, report nothing
        self.selected: Tensor | None = None  # DSA: the keys that the last indexer chose, for layers that share them
        self._once: dict[Hashable, Any] = {}

    @property
    def whole(self) -> Context:
        """The Context of whole rows. Not an attribute: one that refers to itself lives until the next garbage collection."""
        return self if self._rows is None else self._rows

    def part(self, context_parallel: ContextParallel | None) -> Context:
        """The Context of this rank's tokens; the same one if tokens are not divided."""
        if context_parallel is None:
            return self
        documents = None if self.documents_BT is None else context_parallel.own(self.documents_BT)
        part = Context(context_parallel.own(self.positions_BT), documents, record=self.record)
        part.context_parallel, part._rows = context_parallel, self
        return part

    @property
    def wants_logits(self) -> bool:
        """Whether attention layers report their largest logits. Only then may a compiled layer know its number."""
        return self.record is not None and self.record.want_logits

    def own(self, x: Tensor, axis: int = 1) -> Tensor:
        """This pass's tokens of whole rows."""
        return x if self.context_parallel is None else self.context_parallel.own(x, axis)

    def gather(self, x: Tensor, axis: int) -> Tensor:
        """Whole rows from this pass's tokens."""
        return x if self.context_parallel is None else self.context_parallel.gather(x, axis)

    def keys(self, x: Tensor, axis: int) -> Tensor:
        """The keys (or values) that queries see: whole rows, unless they are passed around a ring."""
        return (
            x if self.context_parallel is None or self.context_parallel.ring else self.context_parallel.gather(x, axis)
        )

    @property
    def index_T(self) -> Tensor:
        """The index of each of this pass's tokens in its row."""
        positions = self.whole.positions_BT
        return self.once("index", lambda: self.own(torch.arange(positions.shape[1], device=positions.device), 0))

    def once(self, key: Hashable, compute: Callable[[], T]) -> T:
        """`compute()` for the first layer that asks, the same object for the others."""
        if key not in self._once:
            self._once[key] = compute()
        return self._once[key]

    @property
    def spans(self) -> list[DocumentSpan] | None:
        """The range of each document in the flattened batch; None where every row is one document."""
        documents = self.documents_BT
        return None if documents is None else self.once("spans", lambda: document_spans(documents))
