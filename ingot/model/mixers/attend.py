"""Softmax attention over whole sequences: picks the fastest backend that understands the layer's options.

| backend | how                                                          | chosen for                                     |
|---------|--------------------------------------------------------------|------------------------------------------------|
| sdpa    | torch's fused attention, documents gathered into batches     | CPU; CUDA rows without documents, window, chunk |
| blocks  | blocks of queries against the keys in sight, plain PyTorch   | softcap or sinks on a CPU; CUDA: what flex lacks |
| varlen  | torch's FlashAttention over sequences of any length          | CUDA, 16 bit                                    |
| flex    | torch's flex_attention, compiled                             | CUDA: softcap, sinks, or float32                |
| ring    | blocks of queries against keys that go around the ranks      | context parallel, if asked for                  |
| plain   | the definition, with a dense mask                            | options that no other backend understands       |

Each backend is a file attend_NAME.py of this folder, `plain` is kernels/attention/attend_plain.py. Each lists the options that it
understands. `plain` alone makes anything of size T×T. Padding gives zeros and takes no gradient.
A layer may name a function of the user's own instead (`backend: file.py:attend`). It is called as

    attend(query_BHTW, key_BKTW, value_BKTV, mask, options)        gives [B, H, T, V]

with a mask of booleans that has causality, documents, window and chunk in it, and must do what `options` says of the rest.
In a pass that asks for the largest logits (record.py), flex, blocks and plain return them; for the others, and under a
softcap, which flex applies before it looks, q·k is computed a second time, without values: by flex where it can, else in blocks.
Everything runs in the values' dtype: under autocast a norm or a rotation may have left queries and keys in float32.

Shapes: B rows, H query heads, K key and value heads, T tokens, W key width, V value width (it may differ
from W: multi-head latent attention).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor

from ingot.kernels.allow_list import understands, unknown_fields
from ingot.kernels.attention import attend_plain as plain
from ingot.kernels.attention.attend_plain import attend_plain
from ingot.kernels.attention.attention_options import AttentionOptions
from ingot.model.context import Context
from ingot.model.document_spans import PADDING
from ingot.model.mixers import attend_blocks as blocks
from ingot.model.mixers import attend_flex as flex
from ingot.model.mixers import attend_sdpa as sdpa
from ingot.model.mixers import attend_varlen as varlen
from ingot.model.mixers.attend_blocks import attend_blocks, block_peaks
from ingot.model.mixers.attend_flex import NARROWEST, attend_flex, flex_allowed
from ingot.model.mixers.attend_ring import attend_ring
from ingot.model.mixers.attend_sdpa import attend_sdpa
from ingot.model.mixers.attend_varlen import attend_varlen, varlen_allowed
from ingot.model.mixers.mask import Mask

Backend = Literal["sdpa", "blocks", "varlen", "flex", "ring", "plain"]
# the options that each backend understands: one that is set and not listed makes another backend run
OPTIONS: Mapping[Backend, frozenset[str]] = {
    "sdpa": sdpa.OPTIONS,
    "varlen": varlen.OPTIONS,
    "flex": flex.OPTIONS,
    "blocks": blocks.OPTIONS,
    "ring": blocks.OPTIONS,  # its products are those of blocks
    "plain": plain.OPTIONS,
}

OwnBackend = Callable[[Tensor, Tensor, Tensor, Tensor, AttentionOptions], Tensor]

_forced: Backend | None = None


@contextmanager
def use_backend(backend: Backend) -> Iterator[None]:
    """A context in which whole-sequence attention runs on `backend`: for tests and benchmarks."""
    global _forced
    before, _forced = _forced, backend
    try:
        yield
    finally:
        _forced = before


def attend(
    query_BHTW: Tensor,
    key_BKTW: Tensor,
    value_BKTV: Tensor,
    context: Context,
    options: AttentionOptions,
    *,
    layer: int | None = None,
    backend: OwnBackend | None = None,
) -> Tensor:
    """Causal attention [B, H, T, V] inside each document of whole sequences; `layer` is the name of its largest logits."""
    query_BHTW, key_BKTW = query_BHTW.to(value_BKTV.dtype), key_BKTW.to(value_BKTV.dtype)
    mask = Mask.within(context.whole.positions_BT.shape[1], options.window, options.chunk)
    wanted = layer is not None and context.record is not None and context.record.want_logits
    peaks: list[Tensor] | None = [] if wanted else None
    given = (query_BHTW, key_BKTW, value_BKTV)
    if backend is not None:
        mixed = backend(*given, mask.dense(context), options)
    else:
        mixed = _attend(
            _forced or choose_backend(query_BHTW, value_BKTV, context, mask, options),
            given,
            mask,
            context,
            options,
            peaks,
        )
    if peaks is not None:
        if not peaks:
            peaks.append(largest_scores(query_BHTW, key_BKTW, context, options))
        report_peaks(layer, peaks[0], context)
    if context.documents_BT is None:
        return mixed
    return mixed.masked_fill((context.documents_BT == PADDING)[:, None, :, None], 0)


def _attend(
    backend: Backend,
    given: tuple[Tensor, Tensor, Tensor],
    mask: Mask,
    context: Context,
    options: AttentionOptions,
    peaks: list[Tensor] | None,
) -> Tensor:
    """What a backend of the table gives; it may put the largest logits into `peaks`."""
    query_BHTW = given[0]
    if backend != "plain" and not understands(options, OPTIONS[backend]):
        raise ValueError(f"{backend} attention has no {' or '.join(unknown_fields(options, OPTIONS[backend]))}")
    if backend == "plain":
        return attend_plain(*given, mask.dense(context), options, peaks=peaks)
    if backend == "blocks":
        return attend_blocks(*given, mask, context, options, peaks=peaks)
    if backend == "flex":
        knows_peaks = options.softcap is None and query_BHTW.is_cuda
        return attend_flex(*given, mask, context, options, peaks=peaks if knows_peaks else None)
    if backend == "ring":
        return attend_ring(*given, mask, context, options, peaks=peaks)
    if backend == "varlen":
        return attend_varlen(*given, mask, context, options)
    return attend_sdpa(*given, mask, context, options)


@torch.no_grad()
def largest_scores(query_BHTW: Tensor, key_BKTW: Tensor, context: Context, options: AttentionOptions) -> Tensor:
    """Each query's largest score before the softcap among the keys that it sees [B, H, T], without anything of size T×T."""
    mask = Mask.within(key_BKTW.shape[2], options.window, options.chunk)
    options = AttentionOptions(options.scale, options.window, options.chunk)
    if not flex_allowed(query_BHTW, key_BKTW):
        return block_peaks(query_BHTW, key_BKTW, mask, context, options)
    peaks: list[Tensor] = []
    # the fewest channels that the kernel takes; its output is not used
    any_values = key_BKTW[..., :NARROWEST].contiguous()
    attend_flex(query_BHTW, key_BKTW, any_values, mask, context, options, peaks=peaks)
    return peaks[0]


def report_peaks(layer: int | None, peaks_BHT: Tensor, context: Context) -> None:
    """Put the heads' largest logits into the pass's record; those of padding do not count."""
    assert context.record is not None and layer is not None
    if context.documents_BT is not None:
        peaks_BHT = peaks_BHT.masked_fill((context.documents_BT == PADDING)[:, None], -torch.inf)
    context.record.add_max_logits(layer, peaks_BHT.amax(dim=(0, 2)))


def choose_backend(
    query_BHTW: Tensor, value_BKTV: Tensor, context: Context, mask: Mask, options: AttentionOptions
) -> Backend:
    """The fastest backend that understands the options and takes these tensors; the definition if there is none."""
    if context.context_parallel is not None and context.context_parallel.ring:
        return "ring"  # no other backend passes keys around
    if context.context_parallel is None:  # sdpa and varlen take as many queries as keys
        whole = mask == Mask() and context.documents_BT is None and query_BHTW.dtype != torch.float64
        if understands(options, sdpa.OPTIONS) and (query_BHTW.device.type != "cuda" or whole):
            return "sdpa"
        if understands(options, varlen.OPTIONS) and varlen_allowed(query_BHTW, value_BKTV):
            return "varlen"
    if understands(options, flex.OPTIONS) and flex_allowed(query_BHTW, value_BKTV):
        return "flex"
    return "blocks" if understands(options, blocks.OPTIONS) else "plain"
