"""Attention by torch's FlashAttention over sequences of any length: CUDA, 16 bit (torch.nn.attention.varlen).

The flattened batch is one long sequence with borders where a document, a chunk or a row begins; the window is the kernel's
own. Padding is a sequence like any other, so that nothing is gathered or scattered; attend.py makes its outputs zeros.

Shapes: B rows, T tokens, H and K heads, W key width, V value width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ingot.kernels.attention.attention_options import AttentionOptions
from ingot.model.context import Context
from ingot.model.mixers.attend_sdpa import first_channels, same_width
from ingot.model.mixers.mask import Mask

OPTIONS = frozenset(("scale", "window", "chunk"))  # that the kernel understands
WIDEST = 256  # of a head, in the kernel
# before version 2.12 the kernel had no argument enable_gqa
ASKS = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 12)


def varlen_allowed(query_BHTW: Tensor, value_BKTV: Tensor) -> bool:
    """The kernel takes: CUDA, 16 bits, heads of a multiple of 8 channels, at most WIDEST."""
    width = max(query_BHTW.shape[-1], value_BKTV.shape[-1])
    half = query_BHTW.dtype in (torch.bfloat16, torch.float16)
    return query_BHTW.device.type == "cuda" and half and width % 8 == 0 and width <= WIDEST


def attend_varlen(
    query_BHTW: Tensor,
    key_BKTW: Tensor,
    value_BKTV: Tensor,
    mask: Mask,
    context: Context,
    options: AttentionOptions,
) -> Tensor:
    """Causal attention [B, H, T, V] within documents, window and chunk; padding counts as a document."""
    from torch.nn.attention.varlen import varlen_attn  # here, because loading it takes a second

    rows, _, length, _ = query_BHTW.shape
    borders, longest = context.once(("varlen", mask.chunk), lambda: _borders(mask, context))
    query, key, value = same_width(query_BHTW, key_BKTW, value_BKTV)
    window = (-1 if mask.window is None else mask.window - 1, 0)  # keys before the query, keys after it
    given: dict[str, Any] = {"scale": options.scale, "window_size": window}
    if ASKS:
        given["enable_gqa"] = True
    query, key, value = (x.transpose(1, 2).flatten(0, 1) for x in (query, key, value))
    mixed = varlen_attn(query, key, value, borders, borders, longest, longest, **given)
    assert isinstance(mixed, Tensor)
    return first_channels(mixed.unflatten(0, (rows, length)).transpose(1, 2), value_BKTV.shape[-1])


def _borders(mask: Mask, context: Context) -> tuple[Tensor, int]:
    """The start of each sequence in the flattened batch (and the end of the last), and the longest length.

    The count of sequences is the shape of a tensor, so this waits for the device, once per pass and chunk size, unless
    the batch brought them along (`metadata`).
    """
    if context.metadata is not None and mask.chunk is None:
        return context.metadata.starts, context.metadata.longest
    first = Mask(chunk=mask.chunk).first(context)
    rows, length = context.positions_BT.shape
    begins = (first == torch.arange(length, device=first.device)).expand(rows, length)
    borders = torch.nn.functional.pad(begins.flatten().nonzero().flatten(), (0, 1), value=rows * length)
    return borders.to(torch.int32), int(borders.diff().max())
