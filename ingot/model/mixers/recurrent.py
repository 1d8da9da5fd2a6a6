"""Shared by the linear-time mixers: carries a state from chunk to chunk or token to token, by a kernel or by the definition.

Training and prefill go through a row in chunks of C tokens (matrix products inside a chunk, a short loop over chunks: kernels/
chunks.py); decoding goes token by token. A document is a run of equal numbers; padding (−1) is a run like any other, so it
influences nothing and needs no care. With a cache, the tokens after a row's `lengths_B` must not change the state: the
recurrences give them no decay and nothing to write (`real_tokens`).

States are kept in float32 at least, and the definitions run in it, whatever the dtype of the activations and whether or
not autocast is on: errors in a state stay there for the rest of the document. Kernels multiply in the activations' bfloat16 and
keep the running state in float32.

Shapes: B rows, T tokens, N chunks, C tokens of a chunk, H heads, K key width, V value width.
"""

from __future__ import annotations

from abc import abstractmethod
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from ingot.kernels.launch import has_triton
from ingot.kernels.linear.chunks import CHUNK, Chunks, Sequences, cut_documents, cut_equal, cut_rows
from ingot.kernels.linear.recurrent_step import step_in_place, step_kernel_allowed
from ingot.model.context import Context
from ingot.model.mixers.cache import Cache, CacheShape, StateCache
from ingot.model.mixers.mixer import Mixer


class RecurrentMixer(Mixer):
    """A mixer whose past is a state. Its states are `recurrent` and, if it convolves, `convolution`."""

    whole_rows = True

    def prepare(self, context: Context) -> None:
        whole = context.whole
        document_runs(whole)
        if whole.positions_BT.is_cuda and has_triton():
            sequences_of(whole)

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


def recur(rule: Any, inputs: tuple[Tensor, ...], context: Context, cache: StateCache | None) -> Tensor:
    """o [B, T, H, V] of a recurrence over queries, keys, values and more [B, T, …]; `rule` is a module of kernels/.

    With a cache the rows go on from its `recurrent` state [B, H, K, V] and renew it.
    """
    if inputs[2].shape[1] == 1:
        return _recur_once(rule, inputs, context, cache)
    if rule.kernel_allowed(*inputs) and (cache is None or context.documents_BT is None):
        state = read_state("recurrent", context, cache)
        mixed, state = rule.by_kernel(*inputs, state, sequences_of(context), wants_state=cache is not None)
    else:
        inputs = tuple(precise(x) for x in inputs)
        mixed, state = rule.chunked(*inputs, _first_state(inputs, context, cache), chunks_of(context))
    if state is not None:
        write_state("recurrent", state, context, cache)
    return mixed


def _recur_once(rule: Any, inputs: tuple[Tensor, ...], context: Context, cache: StateCache | None) -> Tensor:
    """The same for rows of one token."""
    inputs = tuple(precise(x[:, 0]) for x in inputs)
    if cache is not None and step_kernel_allowed(cache.states["recurrent"], inputs):
        assert context.slots_B is not None
        return step_in_place(cache.states["recurrent"], context.slots_B, context.positions_BT[:, 0], *inputs)[:, None]
    mixed, state = rule.step(*inputs, _first_state(inputs, context, cache))
    write_state("recurrent", state, context, cache)
    return mixed[:, None]


def _first_state(inputs: tuple[Tensor, ...], context: Context, cache: StateCache | None) -> Tensor:
    """The state [B, H, K, V] that the rows go on from."""
    state = read_state("recurrent", context, cache)
    if state is not None:
        return state
    key, value = inputs[1:3]
    return value.new_zeros(value.shape[0], value.shape[-2], key.shape[-1], value.shape[-1])


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


def chunks_of(context: Context, size: int = CHUNK) -> Chunks:
    """The pass's rows as chunks of `size` tokens (a power of two; fewer for short rows), the same for every layer."""
    length = context.positions_BT.shape[1]
    size = min(size, 1 << (length - 1).bit_length())
    runs = document_runs(context)
    return context.once(("chunks", size), lambda: cut_rows(length, size, runs, context.positions_BT.device))


def sequences_of(context: Context) -> Sequences:
    """The pass's documents as sequences of the flattened batch, the same for every layer.

    Where documents begin the batch says (`metadata`); without that this waits for the device, once a pass.
    """
    return context.once("sequences", lambda: _sequences(context))


def _sequences(context: Context) -> Sequences:
    rows, length = context.positions_BT.shape
    runs = document_runs(context)
    if runs is None:
        return cut_equal(rows, length, context.positions_BT.device)
    if context.metadata is not None:
        starts = context.metadata.starts
    else:
        begins = pad(runs[:, 1:] != runs[:, :-1], (1, 0), value=True)
        starts = pad(begins.flatten().nonzero().flatten(), (0, 1), value=rows * length)
    made = cut_documents(starts, rows * length)
    for tensor in (made.starts, made.chunks, made.offsets):  # no new code for every number of documents
        torch._dynamo.maybe_mark_dynamic(tensor, 0)
    return made
