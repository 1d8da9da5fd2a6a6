"""Who may look at whom: one description of the attention mask, in the form that the backends need.

    visible(query i, key j)  =  j ≤ i   and   i − j < window   and   document(i) = document(j)

A packed row holds several documents; a document is a run of equal numbers, −1 marks padding. Because a document is
contiguous, causal attention over a packed row *is* causal attention over each document by itself: that is how it is
computed (`spans`), without a T×T mask and without the work between documents. `dense` is the definition written out,
the reference that the tests compare with.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

PADDING = -1


@dataclass(frozen=True)
class Span:
    """A document's place in the flattened batch: tokens[start:end]."""

    start: int
    end: int


def document_spans(documents_BT: Tensor) -> list[Span]:
    """The runs of equal document number in every row, padding left out."""
    rows, length = documents_BT.shape
    flat = documents_BT.reshape(-1)
    starts = torch.ones_like(flat, dtype=torch.bool)
    starts[1:] = flat[1:] != flat[:-1]
    starts[::length] = True
    begin = starts.nonzero().flatten().tolist()
    numbers = flat[begin].tolist() if begin else []
    ends = [*begin[1:], rows * length]
    return [Span(start, end) for start, end, number in zip(begin, ends, numbers, strict=True) if number != PADDING]


def dense(length: int, window: int | None, documents_BT: Tensor | None, device: torch.device) -> Tensor:
    """The mask as booleans [B or 1, 1, T, T], true where a query (third axis) sees a key (fourth axis)."""
    position = torch.arange(length, device=device)
    distance = position[:, None] - position[None, :]
    visible = distance >= 0
    if window is not None:
        visible &= distance < window
    visible = visible[None, None]
    if documents_BT is not None:
        same = documents_BT[:, None, :, None] == documents_BT[:, None, None, :]
        visible = visible & same
    return visible
