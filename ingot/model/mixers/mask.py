"""The attention mask: one description of which keys a query sees, which every backend converts to its own form.

    visible(query i, key j)  =  j ≤ i   and   i − j < window   and   ⌊p_i/chunk⌋ = ⌊p_j/chunk⌋   and   document(i) = document(j)

with p the position inside the document. A document is a run of equal numbers in a row; −1 marks padding, whose outputs are
zeros (attend.py). Documents and chunks are contiguous, so what query i sees is always an interval:

    first_i ≤ j ≤ i,      first_i = max(start of the document, start of the chunk, i − window + 1)

and first never decreases along a row. That one number per query is the whole mask: no backend needs a T×T matrix except
`dense`, the definition that the tests compare with.

Where the tokens of a row are divided over ranks (context_parallel.py), queries are this rank's and keys those of the whole row;
i and first_i still count from the beginning of the row.

Shapes: B rows, T tokens, S keys: T, or those of the whole row.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ingot.model.context import Context
from ingot.model.document_spans import DocumentSpan


@dataclass(frozen=True)
class Mask:
    """The limits of a layer's mask besides causality and documents. Equal masks share their work within a pass."""

    window: int | None = None  # keys that a query sees, itself included
    chunk: int | None = None  # a query sees only the keys of its own chunk of this many positions

    @classmethod
    def within(cls, length: int, window: int | None, chunk: int | None) -> Mask:
        """The mask for rows of `length` tokens: a rule that cannot hide anything is left out."""
        return cls(
            window if window is not None and window < length else None,
            chunk if chunk is not None and chunk < length else None,
        )

    def first(self, context: Context) -> Tensor:
        """The index in its row of the first key that each query sees [B, T]. Nothing here waits for the device."""
        whole = context.whole
        return context.once(
            ("first", self.window, self.chunk),
            lambda: context.own(self._first(whole.positions_BT, whole.documents_BT)),
        )

    def _first(self, positions_BT: Tensor, documents_BT: Tensor | None) -> Tensor:
        index_T = torch.arange(positions_BT.shape[1], device=positions_BT.device)
        first_BT = torch.zeros_like(positions_BT, dtype=index_T.dtype)
        if documents_BT is not None:
            first_BT[:, 1:] = index_T[1:] * (documents_BT[:, 1:] != documents_BT[:, :-1])
            first_BT = first_BT.cummax(dim=1).values
        if self.chunk is not None:
            first_BT = index_T - (index_T - first_BT) % self.chunk
        return first_BT if self.window is None else torch.maximum(first_BT, index_T - self.window + 1)

    def pieces(self, context: Context) -> list[DocumentSpan]:
        """The documents of the flattened batch, cut into chunks: inside a piece only causality and window hide anything."""
        return context.once(("pieces", self.chunk), lambda: self._pieces(context))

    def _pieces(self, context: Context) -> list[DocumentSpan]:
        rows, length = context.positions_BT.shape
        spans = context.spans
        if spans is None:
            spans = [DocumentSpan(row * length, (row + 1) * length) for row in range(rows)]
        if self.chunk is None:
            return spans
        return [
            DocumentSpan(start, min(start + self.chunk, span.end))
            for span in spans
            for start in range(span.start, span.end, self.chunk)
        ]

    def dense(self, context: Context) -> Tensor:
        """The mask as booleans [B, 1, T, S], true where a query (third axis) sees a key (fourth axis) of its whole row."""
        first = self.first(context)[:, None, :, None]
        key_S = torch.arange(context.whole.positions_BT.shape[1], device=first.device)
        return (key_S >= first) & (key_S <= context.index_T[:, None])


def mean_keys(length: int, window: int | None = None, chunk: int | None = None) -> float:
    """How many keys a query sees on average in a text of this length: what the cost of attention grows with."""
    span = min(chunk or length, length)
    whole, rest = divmod(length, span)
    return (whole * _pairs(span, window) + _pairs(rest, window)) / length


def _pairs(span: int, window: int | None) -> float:
    """Queries times the keys they see, in a span where only the window hides keys."""
    reach = min(window or span, span)
    return reach * span - reach * reach / 2
