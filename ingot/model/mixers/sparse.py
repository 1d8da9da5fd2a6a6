"""DeepSeek sparse attention (DeepSeek-V3.2): each query attends to the `keep` keys that an indexer scores highest.

    S_t = the keep best keys s of I[t, s] that query t may see (all of them where there are no more)
    o_t = Σ_{s ∈ S_t} softmax_s(scale · q_t·k_s) v_s

The kernels of kernels/sparse/ choose the keys (select_keys.py), attend to them in absorbed form (sparse_attention.py), make the
indexer's losses (index_divergence.py, dense_divergence.py). Without them (a CPU, float64) there are two forms, as in mla.py: few
queries gather the entries of their own keys (absorbed); many see all keys under a mask (expanded, `attend_masked`), which is less
to copy.

The choice is not differentiable, so the loss of the language model never reaches the indexer. It has a loss of its own: with
p_t the attention probabilities averaged over the heads, without gradient,

    Σ_t KL(p_t ‖ softmax(I[t, ·]))        over all visible keys during the dense warm-up, over S_t afterwards

PyTorch code here runs in blocks of queries, recomputed in the backward pass: no tensor of queries × keys outlives its block.

Where tokens are divided over ranks (context_parallel.py), queries are this rank's and keys those of whole rows: a rank chooses,
attends and has the loss for its own queries. Where heads are divided (train/parallel/tensor.py), every rank chooses the same keys
and has the same loss; `all_heads` makes p_t the mean over the heads of all ranks.

Shapes: B rows, T queries, S keys, K kept keys, H heads, W key width, V value width, E entry, L latent (mla.py). Chosen keys
are int32 [B, T, K], −1 where a query sees fewer than K.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from ingot.kernels.attention.blocks import blocks, recomputed, summed_in_float32
from ingot.kernels.sparse.dense_divergence import dense_divergence
from ingot.kernels.sparse.index_divergence import chosen_divergence
from ingot.kernels.sparse.select_keys import select_keys
from ingot.model.context import Context
from ingot.model.document_spans import PADDING
from ingot.model.mixers.indexer import Index
from ingot.model.mixers.mask import Mask


def sight(context: Context) -> tuple[Tensor, Tensor]:
    """The first and the last key of its row that each query sees, both [B or 1, T]."""
    if context.slots_B is not None:
        return torch.zeros_like(context.positions_BT), context.positions_BT
    return Mask().first(context), context.index_T[None]


def select(index: Index, keep: int, context: Context) -> Tensor:
    """The best `keep` keys of every query."""
    first_BT, last_BT = (each.expand(index.query_BTHW.shape[:2]) for each in sight(context))
    past = _past(context, index.key_BSW.shape[1])
    return select_keys(*index, first_BT, last_BT, keep=keep, past=past)


def attend_masked(
    query_BHTW: Tensor, key_BHSW: Tensor, value_BHSV: Tensor, selected_BTK: Tensor, context: Context, scale: float
) -> Tensor:
    """Expanded: attention [B, H, T, V] over all keys with a mask that shows the chosen ones, block by block."""
    (rows, heads, length, _), keys = query_BHTW.shape, key_BHSW.shape[2]
    key_BHSW, value_BHSV = summed_in_float32(key_BHSW), summed_in_float32(value_BHSV)

    def attend(query: Tensor, key: Tensor, value: Tensor, selected_BTK: Tensor) -> Tensor:
        seen_B1TS = _chosen(selected_BTK, key.shape[2])[:, None]
        key, value = key.to(query.dtype), value.to(query.dtype)
        return scaled_dot_product_attention(query, key, value, attn_mask=seen_B1TS, scale=scale)

    parts = []
    for block in blocks(length, rows * heads * keys):
        reach = min(_past(context, keys) + block.stop, keys)
        part = (query_BHTW[:, :, block], key_BHSW[:, :, :reach], value_BHSV[:, :, :reach], selected_BTK[:, block])
        parts.append(recomputed(attend, *part))
    return torch.cat(parts, dim=2)


def chosen_index_divergence(index: Index, selected_BTK: Tensor, target_BTK: Tensor, context: Context) -> Tensor:
    """Σ_t KL(p_t ‖ softmax(I_t)) over the real tokens t, on the chosen keys; `target_BTK` is p_t there."""
    return (chosen_divergence(*index, selected_BTK, target_BTK) * _counted(context)).sum()


def dense_index_divergence(
    index: Index,
    query_BHTW: Tensor,
    key_BHSW: Tensor,
    context: Context,
    scale: float,
    all_heads: Callable[[Tensor], Tensor],
) -> Tensor:
    """The same on all visible keys: the dense warm-up."""
    first_BT, last_BT = (each.expand(index.query_BTHW.shape[:2]) for each in sight(context))
    past = _past(context, key_BHSW.shape[2])
    given = (query_BHTW, key_BHSW, first_BT, last_BT, _counted(context).expand_as(first_BT))
    return dense_divergence(index, *given, scale=scale, past=past, all_heads=all_heads)


def _counted(context: Context) -> Tensor:
    """Which tokens are real, [B or 1, T]."""
    if context.documents_BT is None:
        return torch.ones_like(context.positions_BT, dtype=torch.bool)
    return context.documents_BT != PADDING


def _chosen(selected_BTK: Tensor, keys: int) -> Tensor:
    """The chosen keys as booleans [B, T, S]."""
    seen = torch.zeros(*selected_BTK.shape[:2], keys + 1, dtype=torch.bool, device=selected_BTK.device)
    return seen.scatter_(2, selected_BTK.long() % (keys + 1), True)[..., :-1]  # −1 marks a column that is cut off


def _past(context: Context, keys: int) -> int:
    """Query number t of a row sees no key beyond past + t."""
    in_order = context.slots_B is None and context.context_parallel is None
    return 0 if in_order else keys
