"""Finds on the host where documents begin and which positions are scored, so that the host never waits for the GPU.

Counting documents or scored tokens on a GPU makes the program wait for everything queued there, and the loader's batch already
holds both. Sizes are rounded up, because code is compiled again for every new size:

* the list of documents' starts is padded with the end of the batch (documents of no tokens) to a multiple of 8, and of a power
  of two that is an eighth to a sixteenth of their number; more would cost time in the kernel, which takes any length;
* the longest document is rounded up to a power of two, at least 128 tokens, the kernel's block. It starts a program for every
  document and as many blocks as the longest one has, so padding is cut into pieces of that length: a row that is half empty
  would else be the longest document, and most programs would find nothing to do. Where batches vary from step to step, more
  than a quarter of a row counts as a whole one;
* the list of scored positions is padded to a multiple of 2048 with a position that has no weight in any stream; where more than
  three quarters are scored all positions are taken, which is cheaper than gathering them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from ingot.tokens.batch import PADDING_DOCUMENT, Batch, BatchMetadata

DOCUMENTS, SCORED = 8, 2048
SIXTEENTH = 16
BLOCK = 128  # queries that one program of FlashAttention takes
MANY_DOCUMENTS, EIGHTH, QUARTER = 256, 8, 4  # where sizes differ from step to step
MOST = 0.75


def with_metadata(batch: Batch, pin: bool = False, varies: bool = False) -> Batch:
    """The batch with its metadata; `pin` puts all of it into memory from which a GPU copies without waiting.

    Where batches `varies` from step to step sizes are rounded up further, so that a captured graph fits the next ones.
    """
    starts, longest = document_starts(batch.documents, MANY_DOCUMENTS if varies else DOCUMENTS)
    if varies and longest > batch.tokens.shape[1] // QUARTER:
        longest = batch.tokens.shape[1]
    scored = scored_positions(batch, max(SCORED, batch.tokens.numel() // EIGHTH) if varies else SCORED)
    found = BatchMetadata(starts, longest, whole_rows(batch), scored)
    batch = dataclasses.replace(batch, metadata=found)
    return batch.pinned() if pin else batch


class Sizes:
    """Sizes of metadata that steps of varying batches have in common, so that few steps differ in shape.

    The micro-batches of a step get metadata as large as the largest of them, and of steps as large before it.
    """

    def __init__(self) -> None:
        self._largest: dict[int, tuple[int, int, int]] = {}  # by positions: documents, longest, scored positions

    def same(self, batches: Sequence[Batch]) -> list[Batch]:
        """The micro-batches of a step with sizes in common."""
        listed = [batch.metadata for batch in batches if batch.metadata is not None]
        assert len(listed) == len(batches)
        positions = max(batch.tokens.numel() for batch in batches)
        before = self._largest.get(positions, (0, 0, 0))
        starts = max(before[0], *(len(each.starts) for each in listed))
        longest = max(before[1], *(each.longest for each in listed))
        some = all(each.scored is not None for each in listed)
        scored = max(before[2], *(len(each.scored) for each in listed if each.scored is not None)) if some else None
        self._largest[positions] = starts, longest, scored or before[2]

        def enlarge(batch: Batch, metadata: BatchMetadata) -> Batch:
            places = metadata.scored
            if scored is None or places is None:
                places = None
            else:
                places = pad(places, (0, scored - len(places)), value=_idle(is_scored(batch)))
            ends = pad(metadata.starts, (0, starts - len(metadata.starts)), value=batch.tokens.numel())
            return dataclasses.replace(batch, metadata=BatchMetadata(ends, longest, metadata.whole, places))

        return [enlarge(batch, metadata) for batch, metadata in zip(batches, listed, strict=True)]


def whole_rows(batch: Batch) -> bool:
    """Whether every row is one document without padding; taken from its metadata if it has any."""
    if batch.metadata is not None:
        return batch.metadata.whole
    documents_BT = batch.documents
    return bool((documents_BT == documents_BT[:, :1]).all()) and not bool((documents_BT == PADDING_DOCUMENT).any())


def document_starts(documents_BT: Tensor, multiple: int = DOCUMENTS) -> tuple[Tensor, int]:
    """Starts of the documents and of pieces of padding in the flattened batch, the end repeated, and a bound of their lengths."""
    rows, length = documents_BT.shape
    begins = torch.ones_like(documents_BT, dtype=torch.bool)
    begins[:, 1:] = documents_BT[:, 1:] != documents_BT[:, :-1]
    index = torch.arange(length)
    offsets = index - torch.where(begins, index, 0).cummax(dim=1).values  # of each position in its document
    padding = documents_BT == PADDING_DOCUMENT
    longest = int(offsets.masked_fill(padding, 0).max()) + 1
    longest = min(max(BLOCK, 1 << (longest - 1).bit_length()), length)
    starts = (begins | (padding & (offsets % longest == 0))).flatten().nonzero().flatten()
    multiple = max(multiple, (1 << len(starts).bit_length()) // SIXTEENTH)
    count = -(-(len(starts) + 1) // multiple) * multiple
    padded = torch.full((count,), rows * length, dtype=torch.int32)
    padded[: len(starts)] = starts
    return padded, longest


def scored_positions(batch: Batch, multiple: int = SCORED) -> Tensor | None:
    """Positions of the flattened batch that hold all scored ones; None if that is all of them."""
    scored = is_scored(batch).flatten()
    positions = scored.nonzero().flatten()
    count = -(-len(positions) // multiple) * multiple
    if len(positions) > MOST * scored.numel() or count >= scored.numel():
        return None
    return pad(positions, (0, count - len(positions)), value=_idle(scored))


def is_scored(batch: Batch) -> Tensor:
    """True where any stream is not zero [rows, length]."""
    return torch.stack([stream != 0 for stream in batch.streams.values()]).any(dim=0)


def _idle(scored: Tensor) -> int:
    """A position that no stream scores."""
    return int(torch.argmin(scored.to(torch.uint8)))
