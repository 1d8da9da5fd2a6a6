"""Finds the documents of packed rows: runs of equal numbers in `documents_BT`, where PADDING marks what is no document.

Shapes: B rows, T tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

PADDING = -1


@dataclass(frozen=True)
class DocumentSpan:
    """The range of a document in the flattened batch: tokens[start:end]."""

    start: int
    end: int


def document_spans(documents_BT: Tensor) -> list[DocumentSpan]:
    """The runs of equal document number in every row, padding left out."""
    rows, length = documents_BT.shape
    flat = documents_BT.reshape(-1)
    starts = torch.ones_like(flat, dtype=torch.bool)
    starts[1:] = flat[1:] != flat[:-1]
    starts[::length] = True
    begin = starts.nonzero().flatten()
    ends = [*begin[1:].tolist(), rows * length]
    return [
        DocumentSpan(start, end)
        for start, end, number in zip(begin.tolist(), ends, flat[begin].tolist(), strict=True)
        if number != PADDING
    ]
