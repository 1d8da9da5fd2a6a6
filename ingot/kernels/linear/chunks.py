"""Rows cut into chunks, for recurrences that are matrix products inside a chunk and a short loop over chunks.

A row may hold several packed documents, and each has a state of its own. There are two ways to say so.

`Chunks`, for the definitions: rows are cut at every C tokens, and three masks say which tokens reach which:

    visible   token i of a chunk sees token j of it          j ≤ i, and both are in the same document
    reached   token i sees the state carried into its chunk  i is in the document that was open when the chunk began
    kept      token i enters the state carried out           i is in the document that is open when the chunk ends

    chunk        | a a a a b b | b b c c c c | c c d d e e |
    reached        1 1 1 1 0 0   1 1 0 0 0 0   1 1 0 0 0 0
    kept           0 0 0 0 1 1   0 0 1 1 1 1   0 0 0 0 1 1

`Sequences`, for kernels: the flattened batch is cut where a document or a row begins, and each sequence into chunks of CHUNK
tokens, the last one shorter. How many chunks that gives is known on the device alone. The host takes a bound, so that it need
not wait: the surplus chunks belong to one more sequence, which has no tokens.

Shapes: B rows, T tokens, N chunks, C tokens of a chunk; S sequences, M chunks of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

CHUNK = 64


@dataclass(frozen=True)
class Chunks:
    """Rows of `length` tokens as chunks of `size`, the last one filled up with zeros."""

    length: int
    size: int
    visible_BNCC: Tensor
    reached_BNC: Tensor
    kept_BNC: Tensor

    def split(self, x_BT: Tensor) -> Tensor:
        """[B, T, …] as [B, N, C, …]. The filling is zeros: no decay, nothing to write."""
        missing = -self.length % self.size
        filled = pad(x_BT, (0, 0) * (x_BT.dim() - 2) + (0, missing)) if missing else x_BT
        return filled.unflatten(1, (-1, self.size))

    def join(self, x_BNC: Tensor) -> Tensor:
        """[B, N, C, …] as [B, T, …], without the filling."""
        return x_BNC.flatten(1, 2)[:, : self.length]


def cut_rows(length: int, size: int, runs_BT: Tensor | None, device: torch.device) -> Chunks:
    """Chunks of `size` tokens (a power of two); `runs_BT` numbers the documents of a row, None: one document each."""
    causal = torch.ones(size, size, dtype=torch.bool, device=device).tril()
    if runs_BT is None:
        every = torch.ones(1, 1, size, dtype=torch.bool, device=device)
        return Chunks(length, size, causal[None, None], every, every)
    filling = runs_BT[:, -1:].expand(-1, -length % size)  # the filling belongs to the last document
    runs_BNC = torch.cat((runs_BT, filling), dim=1).unflatten(1, (-1, size))
    last_BN = runs_BNC[:, :, -1]
    open_BN = torch.cat((runs_BNC[:, :1, 0], last_BN[:, :-1]), dim=1)  # a row's first token goes on from the cache
    return Chunks(
        length,
        size,
        visible_BNCC=(runs_BNC[..., :, None] == runs_BNC[..., None, :]) & causal,
        reached_BNC=runs_BNC == open_BN[..., None],
        kept_BNC=runs_BNC == last_BN[..., None],
    )


@dataclass(frozen=True)
class Sequences:
    """Sequences of the flattened batch and their chunks, int32 on the device."""

    starts: Tensor  # [S + 1]: where each sequence begins, and the end of the last
    chunks: Tensor  # [M, 2]: the sequence of each chunk, and the chunk's number in it
    offsets: Tensor  # [S + 1]: the number of each sequence's first chunk


def cut_documents(starts: Tensor, tokens: int) -> Sequences:
    """Sequences from their starts and the end of the last, which may be repeated; one without tokens is added."""
    starts = torch.cat((starts, starts[-1:])).int()
    offsets = pad(((starts.diff() + (CHUNK - 1)) // CHUNK).cumsum(dim=0), (1, 0))
    number = torch.arange(tokens // CHUNK + len(starts) - 1, device=starts.device)
    sequence = (torch.searchsorted(offsets, number, right=True) - 1).clamp(max=len(starts) - 2)
    place = torch.where(number < offsets[-1], number - offsets[sequence], 0)
    return Sequences(starts, torch.stack((sequence, place), dim=1).int(), offsets.int())


def cut_equal(rows: int, length: int, device: torch.device) -> Sequences:
    """Every row is one sequence."""
    chunks = -(-length // CHUNK)
    number = torch.arange(rows * chunks, dtype=torch.int32, device=device)
    each = torch.arange(rows + 1, dtype=torch.int32, device=device)
    return Sequences(each * length, torch.stack((number // chunks, number % chunks), dim=1), each * chunks)
