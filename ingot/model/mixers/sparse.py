"""DeepSeek sparse attention (DeepSeek-V3.2): each query attends to the `keep` keys that an indexer scores highest.

    S_t = the keep best keys s of I[t, s] that query t may see (all of them where there are no more)
    o_t = Σ_{s ∈ S_t} softmax_s(scale · q_t·k_s) v_s

Two forms, as in mla.py: few queries gather the entries of their own keys (absorbed, `attend_gathered`: decoding reads `keep`
entries however long the past is); many queries see all keys under a mask (expanded, `attend_masked`: training. Fused kernels
skip hidden keys faster than copies can be made for each query).

The choice is not differentiable, so the loss of the language model never reaches the indexer. It has a loss of its own: with
p_t the attention probabilities averaged over the heads, without gradient,

    Σ_t KL(p_t ‖ softmax(I[t, ·]))        over all visible keys during the dense warm-up, over S_t afterwards

Everything runs in blocks of queries, recomputed in the backward pass: no tensor of queries × keys outlives its block.

Shapes: B rows, T queries, S keys, K kept keys, H heads, W key width, V value width, E entry, L latent (mla.py). Chosen keys
are int32 [B, T, K], −1 where a query sees fewer than K.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

from ingot.kernels.attend_latent import mix_entries, probabilities
from ingot.model.context import Context
from ingot.model.mixers.indexer import Index, index_scores
from ingot.model.mixers.mask import PADDING, Mask

BLOCK_NUMBERS = 2**27  # numbers in the largest tensor of a block: 512 MiB of float32


def visible(context: Context, queries: slice, keys: int) -> Tensor:
    """Whether each of the queries sees each of the row's first keys: booleans [B or 1, T, S]."""
    key_S = torch.arange(keys, device=context.positions_BT.device)
    if context.slots_B is not None:
        return key_S <= context.positions_BT[:, queries, None]
    query_T1 = torch.arange(queries.start, queries.stop, device=key_S.device)[:, None]
    return (key_S >= Mask().first(context)[:, queries, None]) & (key_S <= query_T1)


@torch.no_grad()
def select(index: Index, keep: int, context: Context) -> Tensor:
    """The best `keep` keys of every query, in no particular order."""
    rows, length, heads, _ = index.query_BTHW.shape
    keys, chosen = index.key_BSW.shape[1], []
    for block in _blocks(length, rows * heads * keys):
        reach = _reach(context, block, keys)
        scores_BTS = index_scores(_part(index, block, reach))
        scores_BTS = scores_BTS.masked_fill(~visible(context, block, reach), -torch.inf)
        best = scores_BTS.topk(min(keep, reach), dim=-1, sorted=False)
        indices = best.indices.int().masked_fill(best.values == -torch.inf, -1)
        chosen.append(pad(indices, (0, keep - indices.shape[-1]), value=-1))
    return torch.cat(chosen, dim=1)


def attend_gathered(
    query_BTHE: Tensor, entry_BSE: Tensor, selected_BTK: Tensor, latent_width: int, scale: float
) -> Tensor:
    """Absorbed: each query's mixture [B, T, H, L] of its chosen entries, which are copied together for it."""
    rows, length, heads, width = query_BTHE.shape
    entry_BSE = _summed_in_float32(entry_BSE)

    def attend(query_BTHE: Tensor, entry_BSE: Tensor, selected_BTK: Tensor) -> Tensor:
        entry_BTKE = _gather(entry_BSE, selected_BTK).to(query_BTHE.dtype)
        return mix_entries(query_BTHE, entry_BTKE, selected_BTK >= 0, latent_width, scale)

    blocks = _blocks(length, rows * selected_BTK.shape[2] * max(heads, width))
    parts = [_recomputed(attend, query_BTHE[:, block], entry_BSE, selected_BTK[:, block]) for block in blocks]
    return torch.cat(parts, dim=1)


def attend_masked(
    query_BHTW: Tensor, key_BHSW: Tensor, value_BHSV: Tensor, selected_BTK: Tensor, context: Context, scale: float
) -> Tensor:
    """Expanded: attention [B, H, T, V] over all keys with a mask that shows the chosen ones, block by block."""
    rows, heads, length, _ = query_BHTW.shape
    key_BHSW, value_BHSV = _summed_in_float32(key_BHSW), _summed_in_float32(value_BHSV)

    def attend(query: Tensor, key: Tensor, value: Tensor, selected_BTK: Tensor) -> Tensor:
        seen_B1TS = _chosen(selected_BTK, key.shape[2])[:, None]
        key, value = key.to(query.dtype), value.to(query.dtype)
        return scaled_dot_product_attention(query, key, value, attn_mask=seen_B1TS, scale=scale)

    parts = []
    fused = query_BHTW.is_cuda and query_BHTW.dtype != torch.float64  # else SDPA holds the scores of all heads at once
    for block in _blocks(length, rows * key_BHSW.shape[2] * (1 if fused else heads)):
        reach = _reach(context, block, key_BHSW.shape[2])
        part = (query_BHTW[:, :, block], key_BHSW[:, :, :reach], value_BHSV[:, :, :reach], selected_BTK[:, block])
        parts.append(_recomputed(attend, *part))
    return torch.cat(parts, dim=2)


def index_divergence(
    index: Index, query_BTHE: Tensor, entry_BSE: Tensor, selected_BTK: Tensor | None, context: Context, scale: float
) -> Tensor:
    """Σ_t KL(p_t ‖ softmax(I_t)) over the real tokens t, on the chosen keys, or on all visible ones if none are given."""
    rows, length, heads, _ = query_BTHE.shape
    keys, index_heads = entry_BSE.shape[1], index.query_BTHW.shape[2]
    index = index._replace(key_BSW=_summed_in_float32(index.key_BSW))

    def divergence(block: slice) -> Tensor:
        reach = _reach(context, block, keys)
        seen_BTS = visible(context, block, reach) if selected_BTK is None else _chosen(selected_BTK[:, block], reach)
        with torch.no_grad():
            target_BTS = probabilities(query_BTHE[:, block], entry_BSE[:, :reach], seen_BTS, scale).mean(dim=2)
        scores_BTS = index_scores(_part(index, block, reach)).masked_fill(~seen_BTS, -torch.inf)
        guess_BTS = scores_BTS.log_softmax(dim=-1).masked_fill(~seen_BTS, 0)  # 0 · −∞ is not a number
        divergence_BT = (torch.xlogy(target_BTS, target_BTS) - target_BTS * guess_BTS).sum(dim=-1)
        if context.documents_BT is not None:
            divergence_BT = divergence_BT * (context.documents_BT[:, block] != PADDING)
        return divergence_BT.sum()

    blocks = _blocks(length, rows * max(heads, index_heads) * keys)
    return torch.stack([_recomputed(divergence, block) for block in blocks]).sum()


def _summed_in_float32(x: Tensor) -> Tensor:
    """A copy whose gradient is summed over the blocks in float32: thousands of queries may have chosen the same key."""
    return x.to(torch.promote_types(x.dtype, torch.float32)) if torch.is_grad_enabled() else x


def _chosen(selected_BTK: Tensor, keys: int) -> Tensor:
    """The chosen keys as booleans [B, T, S]."""
    seen = torch.zeros(*selected_BTK.shape[:2], keys + 1, dtype=torch.bool, device=selected_BTK.device)
    return seen.scatter_(2, selected_BTK.long() % (keys + 1), True)[..., :-1]  # −1 marks a column that is cut off


def _gather(x_BSE: Tensor, selected_BTK: Tensor) -> Tensor:
    """Rows [B, T, K, E] of x; the first row where nothing was chosen."""
    rows, keys, width = x_BSE.shape
    offset = keys * torch.arange(rows, device=x_BSE.device)[:, None, None]
    flat = (selected_BTK.clamp_min(0) + offset).flatten()
    return x_BSE.reshape(rows * keys, width).index_select(0, flat).view(*selected_BTK.shape, width)


def _blocks(length: int, numbers_per_query: int) -> Iterator[slice]:
    """Ranges of queries whose largest tensor stays within BLOCK_NUMBERS."""
    step = max(1, BLOCK_NUMBERS // numbers_per_query)
    return (slice(start, min(start + step, length)) for start in range(0, length, step))


def _reach(context: Context, block: slice, keys: int) -> int:
    """How many of the row's keys the block's queries can see at most."""
    return keys if context.slots_B is not None else block.stop


def _part(index: Index, block: slice, reach: int) -> Index:
    """The block's queries and the keys they may see."""
    return Index(index.query_BTHW[:, block], index.weight_BTH[:, block], index.key_BSW[:, :reach])


def _recomputed(function: Callable[..., Tensor], *arguments: Any) -> Tensor:
    """function(*arguments), whose inner tensors are made again in the backward pass instead of kept."""
    if not torch.is_grad_enabled():
        return function(*arguments)
    result = checkpoint(function, *arguments, use_reentrant=False, preserve_rng_state=False)
    assert isinstance(result, Tensor)
    return result
