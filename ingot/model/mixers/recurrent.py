"""Shared by the linear-time mixers: cuts rows into chunks, and carries a state from chunk to chunk or token to token.

Training and prefill go through a row in chunks of C tokens (matrix products inside a chunk, a short loop over chunks);
decoding goes token by token. A row may hold several packed documents, so three masks say which tokens reach which:

    visible   token i of a chunk sees token j of it          j ≤ i, and both are in the same document
    reached   token i sees the state carried into its chunk  i is in the document that was open when the chunk began
    kept      token i enters the state carried out           i is in the document that is open when the chunk ends

    chunk        | a a a a b b | b b c c c c | c c d d e e |
    reached        1 1 1 1 0 0   1 1 0 0 0 0   1 1 0 0 0 0
    kept           0 0 0 0 1 1   0 0 1 1 1 1   0 0 0 0 1 1

A document is a run of equal numbers; padding (−1) is a run like any other, so it influences nothing and needs no care.
With a cache, the tokens after a row's `lengths_B` must not change the state: the recurrences give them no decay and
nothing to write (`real_tokens`).

States are kept in float32 at least, and the recurrences run in it, whatever the dtype of the activations and whether or
not autocast is on: errors in a state stay there for the rest of the document.

Shapes: B rows, T tokens, N chunks, C tokens of a chunk.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from ingot.model.context import Context
from ingot.model.mixers.cache import Cache, CacheShape, StateCache
from ingot.model.mixers.mixer import Mixer

CHUNK = 64


class RecurrentMixer(Mixer):
    """A mixer whose past is a state. Its states are `recurrent` and, if it convolves, `convolution`."""

    whole_rows = True

    @abstractmethod
    def state_shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each state of one sequence."""

    def make_cache(self, cache_shape: CacheShape, dtype: torch.dtype, device: torch.device) -> StateCache:
        dtypes = {"recurrent": torch.promote_types(dtype, torch.float32), "convolution": dtype}
        return StateCache(self.state_shapes(), cache_shape.slots, dtypes, device)


def precise(x: Tensor) -> Tensor:
    """`x` in float32 at least."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def in_full_precision(x: Tensor) -> AbstractContextManager[object]:
    """No autocast inside; the meta device has none."""
    return nullcontext() if x.is_meta else torch.autocast(x.device.type, enabled=False)


def state_cache(cache: Cache | None) -> StateCache | None:
    """The cache that a RecurrentMixer made."""
    assert cache is None or isinstance(cache, StateCache)
    return cache


def read_state(name: str, context: Context, cache: StateCache | None) -> Tensor | None:
    """The state that the rows go on from; None where every row starts anew."""
    if cache is None:
        return None
    assert context.slots_B is not None
    return cache.read(name, context.slots_B, context.positions_BT)


def write_state(name: str, state: Tensor, context: Context, cache: StateCache | None) -> None:
    """Keep the state after the rows' last real tokens, if there is a cache to keep it in."""
    if cache is not None:
        assert context.slots_B is not None
        cache.write(context.slots_B, **{name: state})


def recur(
    step: Callable[..., tuple[Tensor, Tensor]],
    chunked: Callable[..., tuple[Tensor, Tensor]],
    inputs: tuple[Tensor, ...],
    context: Context,
    cache: StateCache | None,
) -> Tensor:
    """o [B, T, H, V] of a recurrence over queries, keys, values and more [B, T, …]: by `step` for one token, else `chunked`.

    With a cache the rows go on from its `recurrent` state [B, H, K, V] and renew it.
    """
    key, value = inputs[1:3]
    state = read_state("recurrent", context, cache)
    if state is None:
        rows, _, heads, width = value.shape
        state = value.new_zeros(rows, heads, key.shape[-1], width)
    if value.shape[1] == 1:
        mixed, state = step(*[each[:, 0] for each in inputs], state)
        mixed = mixed[:, None]
    else:
        mixed, state = chunked(*inputs, state, chunks_of(context))
    write_state("recurrent", state, context, cache)
    return mixed


def real_tokens(context: Context) -> Tensor | None:
    """[B, T], true for the tokens before a row's length; None where all are."""
    lengths = context.lengths_B
    if lengths is None:
        return None
    length = context.positions_BT.shape[1]
    return context.once("real tokens", lambda: torch.arange(length, device=lengths.device) < lengths[:, None])


def document_runs(context: Context) -> Tensor | None:
    """[B, T], the number of the document in its row; None where every row is one document."""
    documents = context.documents_BT
    if documents is None:
        return None
    return context.once("document runs", lambda: pad(documents[:, 1:] != documents[:, :-1], (1, 0)).cumsum(dim=1))


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


def chunks_of(context: Context, size: int = CHUNK) -> Chunks:
    """The pass's rows as chunks of `size` tokens (a power of two; fewer for short rows), the same for every layer."""
    length = context.positions_BT.shape[1]
    size = min(size, 1 << (length - 1).bit_length())
    runs = document_runs(context)
    return context.once(("chunks", size), lambda: _chunks(length, size, runs, context.positions_BT.device))


def _chunks(length: int, size: int, runs_BT: Tensor | None, device: torch.device) -> Chunks:
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
