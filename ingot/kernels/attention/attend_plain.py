"""Softmax attention written out: the definition that every backend and kernel is compared with.

    s_ij = scale · q_i·k_j,     c·tanh(s/c) with a softcap,     o_i = Σ_j softmax_j(s_ij) v_j  over the visible keys j

A sink is one more logit per head in the softmax, with no value (gpt-oss, arXiv 2508.10925): it takes probability away. The
softmax is in float32 (float64 for float64 inputs). All scores exist at once, T × T of them. Window and chunk are in the mask.

Shapes: B rows, H query heads, K key heads, G = H/K query heads per key head, T queries, S keys, W key width, V value width.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ingot.kernels.allow_list import unknown_fields
from ingot.kernels.attention.attention_options import AttentionOptions
from ingot.workspace.errors import IngotError

OPTIONS = frozenset(("scale", "window", "chunk", "softcap", "sinks_H"))


def attend_plain(
    query_BHTW: Tensor,
    key_BKSW: Tensor,
    value_BKSV: Tensor,
    visible: Tensor,
    options: AttentionOptions,
    *,
    peaks: list[Tensor] | None = None,
) -> Tensor:
    """Attention under booleans `visible` [B or 1, 1, T, S]; every query must see a key.

    `peaks` gets each query's largest score before the softcap [B, H, T].
    """
    check_known(options)
    group, length = query_BHTW.shape[1] // key_BKSW.shape[1], query_BHTW.shape[2]
    rows = query_BHTW.unflatten(1, (-1, group)).flatten(2, 3)  # a group's queries share their keys: one longer query
    scores = (rows @ key_BKSW.mT).unflatten(2, (group, length))
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32)) * options.scale
    if peaks is not None:
        peaks.append(scores.detach().masked_fill(~visible[:, :, None], -torch.inf).amax(dim=-1).flatten(1, 2))
    if options.softcap is not None:
        scores = options.softcap * torch.tanh(scores / options.softcap)
    scores = scores.masked_fill(~visible[:, :, None], -torch.inf)
    if options.sinks_H is None:
        weights = scores.softmax(dim=-1)
    else:
        sinks = options.sinks_H.to(scores.dtype).view(1, -1, group, 1, 1).expand(*scores.shape[:-1], 1)
        weights = torch.cat((scores, sinks), dim=-1).softmax(dim=-1)[..., :-1]
    mixed = weights.to(value_BKSV.dtype).flatten(2, 3) @ value_BKSV
    return mixed.unflatten(2, (group, length)).flatten(1, 2)


def check_known(options: AttentionOptions) -> None:
    """An option that even the definition does not know is an error: nothing computes it."""
    unknown = unknown_fields(options, OPTIONS)
    if unknown:
        raise IngotError(
            f"attention has no definition of {', '.join(unknown)}",
            place="AttentionOptions",
            fix="define it in ingot/kernels/attention/attend_plain.py, then in the backends that support it",
        )
