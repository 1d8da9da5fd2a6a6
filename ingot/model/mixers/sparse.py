"""DeepSeek sparse attention (DeepSeek-V3.2): each query attends to the `keep` keys that an indexer scores highest.

    S_t = the keep best keys s of I[t, s] that query t may see (all of them where there are no more)
    o_t = Σ_{s ∈ S_t} softmax_s(scale · q_t·k_s) v_s

Kernels choose the keys (kernels/select_keys.py), attend to them in absorbed form (kernels/sparse_attention.py) and make the
indexer's loss (kernels/index_divergence.py). Without them (a CPU, float64) there are two forms, as in mla.py: few queries gather
the entries of their own keys (absorbed); many see all keys under a mask (expanded, `attend_masked`), which is less to copy.

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

from ingot.kernels.attend_latent import probabilities
from ingot.kernels.blocks import blocks, recomputed, summed_in_float32
from ingot.kernels.index_divergence import chosen_divergence
from ingot.kernels.select_keys import index_scores, select_keys
from ingot.model.context import Context
from ingot.model.mixers.indexer import Index
from ingot.model.mixers.mask import PADDING, Mask


def sight(context: Context) -> tuple[Tensor, Tensor]:
    """The first and the last key of its row that each query sees, both [B or 1, T]."""
    if context.slots_B is not None:
        return torch.zeros_like(context.positions_BT), context.positions_BT
    return Mask().first(context), context.index_T[None]


def visible(context: Context, queries: slice, keys: int) -> Tensor:
    """Whether each of the queries sees each of the row's first keys: booleans [B or 1, T, S]."""
    key_S = torch.arange(keys, device=context.positions_BT.device)
    first_BT, last_BT = sight(context)
    return (key_S >= first_BT[:, queries, None]) & (key_S <= last_BT[:, queries, None])


def select(index: Index, keep: int, context: Context) -> Tensor:
    """The best `keep` keys of every query."""
    first_BT, last_BT = (each.expand(index.query_BTHW.shape[:2]) for each in sight(context))
    past = _reach(context, slice(0, 0), index.key_BSW.shape[1])
    return select_keys(*index, first_BT, last_BT, keep=keep, past=past)


def attend_masked(
    query_BHTW: Tensor, key_BHSW: Tensor, value_BHSV: Tensor, selected_BTK: Tensor, context: Context, scale: float
) -> Tensor:
    """Expanded: attention [B, H, T, V] over all keys with a mask that shows the chosen ones, block by block."""
    rows, heads, length, _ = query_BHTW.shape
    key_BHSW, value_BHSV = summed_in_float32(key_BHSW), summed_in_float32(value_BHSV)

    def attend(query: Tensor, key: Tensor, value: Tensor, selected_BTK: Tensor) -> Tensor:
        seen_B1TS = _chosen(selected_BTK, key.shape[2])[:, None]
        key, value = key.to(query.dtype), value.to(query.dtype)
        return scaled_dot_product_attention(query, key, value, attn_mask=seen_B1TS, scale=scale)

    parts = []
    for block in blocks(length, rows * heads * key_BHSW.shape[2]):
        reach = _reach(context, block, key_BHSW.shape[2])
        part = (query_BHTW[:, :, block], key_BHSW[:, :, :reach], value_BHSV[:, :, :reach], selected_BTK[:, block])
        parts.append(recomputed(attend, *part))
    return torch.cat(parts, dim=2)


def chosen_index_divergence(index: Index, selected_BTK: Tensor, target_BTK: Tensor, context: Context) -> Tensor:
    """Σ_t KL(p_t ‖ softmax(I_t)) over the real tokens t, on the chosen keys; `target_BTK` is p_t there."""
    return _sum_of_real(chosen_divergence(*index, selected_BTK, target_BTK), context, slice(None))


def dense_index_divergence(
    index: Index,
    query_BTHE: Tensor,
    entry_BSE: Tensor,
    context: Context,
    scale: float,
    all_heads: Callable[[Tensor], Tensor],
) -> Tensor:
    """The same on all visible keys: the dense warm-up."""
    rows, length, heads, _ = query_BTHE.shape
    keys, index_heads = entry_BSE.shape[1], index.query_BTHW.shape[2]
    index = index._replace(key_BSW=summed_in_float32(index.key_BSW))

    def divergence(block: slice) -> Tensor:
        reach = _reach(context, block, keys)
        seen_BTS = visible(context, block, reach)
        with torch.no_grad():
            target_BTS = probabilities(query_BTHE[:, block], entry_BSE[:, :reach], seen_BTS, scale).mean(dim=2)
            target_BTS = all_heads(target_BTS)
        scores_BTS = index_scores(index.query_BTHW[:, block], index.weight_BTH[:, block], index.key_BSW[:, :reach])
        guess_BTS = scores_BTS.masked_fill(~seen_BTS, -torch.inf).log_softmax(dim=-1)
        guess_BTS = guess_BTS.masked_fill(~seen_BTS, 0)  # 0 · −∞ is not a number
        divergence_BT = (torch.xlogy(target_BTS, target_BTS) - target_BTS * guess_BTS).sum(dim=-1)
        return _sum_of_real(divergence_BT, context, block)

    ranges = blocks(length, rows * max(heads, index_heads) * keys)
    return torch.stack([recomputed(divergence, block) for block in ranges]).sum()


def _sum_of_real(x_BT: Tensor, context: Context, block: slice) -> Tensor:
    """The sum over the block's tokens, without padding."""
    if context.documents_BT is not None:
        x_BT = x_BT * (context.documents_BT[:, block] != PADDING)
    return x_BT.sum()


def _chosen(selected_BTK: Tensor, keys: int) -> Tensor:
    """The chosen keys as booleans [B, T, S]."""
    seen = torch.zeros(*selected_BTK.shape[:2], keys + 1, dtype=torch.bool, device=selected_BTK.device)
    return seen.scatter_(2, selected_BTK.long() % (keys + 1), True)[..., :-1]  # −1 marks a column that is cut off


def _reach(context: Context, block: slice, keys: int) -> int:
    """How many of the row's keys the block's queries can see at most."""
    in_order = context.slots_B is None and context.context_parallel is None
    return block.stop if in_order else keys
