"""Softmax attention over a pass: one function, one description of the mask, the fastest backend that can do it.

| backend | how                                                          | chosen for                                     |
|---------|--------------------------------------------------------------|------------------------------------------------|
| sdpa    | torch's fused attention, documents gathered into batches     | CPU; CUDA rows without documents, window, chunk |
| blocks  | blocks of queries against the keys in sight, plain PyTorch   | softcap or sinks on a CPU; CUDA: what flex lacks |
| varlen  | torch's FlashAttention over sequences of any length          | CUDA, 16 bit                                    |
| flex    | torch's flex_attention, compiled                             | CUDA: softcap, sinks, or float32                |
| ring    | blocks of queries against keys that go around the ranks      | tokens divided over ranks, if asked for         |
| plain   | the definition, with a dense mask                            | nothing: the reference of the tests             |

Their files are beside this one. None but `plain` makes anything of size T×T. Padding gives zeros and takes no gradient.
In a pass that asks for the largest logits (record.py) flex, blocks and plain tell them on the way; for the others, and under a
softcap, which flex applies before it looks, q·k is computed a second time, without values: by flex where it can, else in blocks.
Everything runs in the values' dtype: under autocast a norm or a rotation may have left queries and keys in float32.

Shapes: B rows, H query heads, K key and value heads, T tokens, S cached places, W key width, V value width (it may differ
from W: multi-head latent attention).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor

from ingot.model.context import Context
from ingot.model.mixers.attend_blocks import attend_blocks, block_peaks
from ingot.model.mixers.attend_flex import NARROWEST, attend_flex, flex_can
from ingot.model.mixers.attend_plain import attend_plain
from ingot.model.mixers.attend_ring import attend_ring
from ingot.model.mixers.attend_sdpa import attend_sdpa
from ingot.model.mixers.attend_varlen import attend_varlen, varlen_can
from ingot.model.mixers.mask import PADDING, Mask

Backend = Literal["sdpa", "blocks", "varlen", "flex", "ring", "plain"]

_forced: Backend | None = None


@contextmanager
def use_backend(backend: Backend) -> Iterator[None]:
    """Inside, whole-sequence attention runs on `backend`: for tests and benchmarks."""
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
    *,
    scale: float,
    window: int | None = None,
    chunk: int | None = None,
    softcap: float | None = None,
    sinks_H: Tensor | None = None,
    layer: int | None = None,
) -> Tensor:
    """Causal attention [B, H, T, V] inside each document of whole sequences; `layer` is the name of its largest logits."""
    query_BHTW, key_BKTW = query_BHTW.to(value_BKTV.dtype), key_BKTW.to(value_BKTV.dtype)
    mask = Mask.within(context.whole.positions_BT.shape[1], window, chunk)
    extras = softcap is not None or sinks_H is not None
    wanted = layer is not None and context.record is not None and context.record.want_logits
    peaks: list[Tensor] | None = [] if wanted else None
    backend = _forced or choose_backend(query_BHTW, value_BKTV, context, mask, extras)
    if backend == "plain":
        mixed = attend_plain(
            query_BHTW,
            key_BKTW,
            value_BKTV,
            mask.dense(context),
            scale=scale,
            softcap=softcap,
            sinks_H=sinks_H,
            peaks=peaks,
        )
    elif backend == "blocks":
        mixed = attend_blocks(
            query_BHTW, key_BKTW, value_BKTV, mask, context, scale=scale, softcap=softcap, sinks_H=sinks_H, peaks=peaks
        )
    elif backend == "flex":
        mixed = attend_flex(
            query_BHTW,
            key_BKTW,
            value_BKTV,
            mask,
            context,
            scale=scale,
            softcap=softcap,
            sinks_H=sinks_H,
            peaks=peaks if softcap is None and query_BHTW.is_cuda else None,
        )
    elif backend == "ring":
        mixed = attend_ring(
            query_BHTW, key_BKTW, value_BKTV, mask, context, scale=scale, softcap=softcap, sinks_H=sinks_H, peaks=peaks
        )
    elif extras:
        raise ValueError(f"{backend} attention has neither softcap nor sinks")
    elif backend == "varlen":
        mixed = attend_varlen(query_BHTW, key_BKTW, value_BKTV, mask, context, scale=scale)
    else:
        mixed = attend_sdpa(query_BHTW, key_BKTW, value_BKTV, mask, context, scale=scale)
    if peaks is not None:
        if not peaks:
            peaks.append(largest_scores(query_BHTW, key_BKTW, context, scale=scale, window=window, chunk=chunk))
        report_peaks(layer, peaks[0], context)
    if context.documents_BT is None:
        return mixed
    return mixed.masked_fill((context.documents_BT == PADDING)[:, None, :, None], 0)


@torch.no_grad()
def largest_scores(
    query_BHTW: Tensor,
    key_BKTW: Tensor,
    context: Context,
    *,
    scale: float,
    window: int | None = None,
    chunk: int | None = None,
) -> Tensor:
    """Each query's largest score among the keys that it sees [B, H, T], without anything of size T×T."""
    mask = Mask.within(key_BKTW.shape[2], window, chunk)
    if not flex_can(query_BHTW, key_BKTW):
        return block_peaks(query_BHTW, key_BKTW, mask, context, scale=scale)
    peaks: list[Tensor] = []
    any_values = key_BKTW[
        ..., :NARROWEST
    ].contiguous()  # the fewest channels that the kernel takes: nobody looks at its output
    attend_flex(query_BHTW, key_BKTW, any_values, mask, context, scale=scale, peaks=peaks)
    return peaks[0]


def report_peaks(layer: int | None, peaks_BHT: Tensor, context: Context) -> None:
    """Put the heads' largest logits into the pass's record; those of padding do not count."""
    assert context.record is not None and layer is not None
    if context.documents_BT is not None:
        peaks_BHT = peaks_BHT.masked_fill((context.documents_BT == PADDING)[:, None], -torch.inf)
    context.record.add_max_logits(layer, peaks_BHT.amax(dim=(0, 2)))


def choose_backend(query_BHTW: Tensor, value_BKTV: Tensor, context: Context, mask: Mask, extras: bool) -> Backend:
    """The automatic choice; `extras` are softcap and sinks."""
    if context.across is not None and context.across.ring:
        return "ring"
    if context.across is not None:  # the other backends take as many queries as keys
        return "flex" if flex_can(query_BHTW, value_BKTV) else "blocks"
    if query_BHTW.device.type != "cuda":
        return "blocks" if extras else "sdpa"
    if not extras and query_BHTW.dtype != torch.float64 and mask == Mask() and context.documents_BT is None:
        return "sdpa"
    if not extras and varlen_can(query_BHTW, value_BKTV):
        return "varlen"
    return "flex" if flex_can(query_BHTW, value_BKTV) else "blocks"
