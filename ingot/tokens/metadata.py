"""Finds on the host where documents begin and which positions are scored, so that the host never waits for the GPU.

Counting documents or scored tokens on a GPU makes the program wait for everything queued there, and the loader's batch already
holds both. Sizes are rounded up, because code is compiled again for every new size:

* the list of documents' starts is padded with the end of the batch (documents of no tokens) to a multiple of 8; more would cost
  time in the kernel, which takes any length;
* the longest document is rounded up to a power of two;
* the list of scored positions is padded to a multiple of 2048 with a position that has no weight in any stream; where more than
  three quarters are scored all positions are taken, which is cheaper than gathering them.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from ingot.tokens.batch import PADDING_DOCUMENT, Batch, BatchMetadata

DOCUMENTS, SCORED = 8, 2048
MANY_DOCUMENTS, EIGHTH = 256, 8  # where sizes differ from step to step
MOST = 0.75


def with_metadata(batch: Batch, pin: bool = False, varies: bool = False) -> Batch:
    """The batch with its metadata; `pin` puts all of it into memory from which a GPU copies without waiting.

    Where batches `varies` from step to step sizes are rounded up further, so that a captured graph fits the next ones.
    """
    starts, longest = document_starts(batch.documents, MANY_DOCUMENTS if varies else DOCUMENTS)
    scored = scored_positions(batch, max(SCORED, batch.tokens.numel() // EIGHTH) if varies else SCORED)
    found = BatchMetadata(starts, batch.tokens.shape[1] if varies else longest, whole_rows(batch), scored)
    batch = dataclasses.replace(batch, metadata=found)
    return batch.pinned() if pin else batch


def whole_rows(batch: Batch) -> bool:
    """Whether every row is one document without padding; taken from its metadata if it has any."""
    if batch.metadata is not None:
        return batch.metadata.whole
    documents_BT = batch.documents
    return bool((documents_BT == documents_BT[:, :1]).all()) and not bool((documents_BT == PADDING_DOCUMENT).any())


def document_starts(documents_BT: Tensor, multiple: int = DOCUMENTS) -> tuple[Tensor, int]:
    """Starts of the documents in the flattened batch with the end repeated, and a bound of their lengths."""
    begins = torch.ones_like(documents_BT, dtype=torch.bool)
    begins[:, 1:] = documents_BT[:, 1:] != documents_BT[:, :-1]
    starts = begins.flatten().nonzero().flatten()
    total = documents_BT.numel()
    count = -(-(len(starts) + 1) // multiple) * multiple
    padded = torch.full((count,), total, dtype=torch.int32)
    padded[: len(starts)] = starts
    longest = int(padded[: len(starts) + 1].diff().max())
    return padded, min(1 << (longest - 1).bit_length(), documents_BT.shape[1])


def scored_positions(batch: Batch, multiple: int = SCORED) -> Tensor | None:
    """Positions of the flattened batch that hold all scored ones; None if that is all of them."""
    scored = torch.stack([stream != 0 for stream in batch.streams.values()]).any(dim=0).flatten()
    positions = scored.nonzero().flatten()
    count = -(-len(positions) // multiple) * multiple
    if len(positions) > MOST * scored.numel() or count >= scored.numel():
        return None
    idle = int(torch.argmin(scored.to(torch.uint8)))
    return torch.nn.functional.pad(positions, (0, count - len(positions)), value=idle)
