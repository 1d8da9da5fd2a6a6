"""The loss of DeepSeek-V3.2's indexer over all visible keys, for its dense warm-up.

    p_t[s]  = 1/H Σ_h softmax_s(scale · q_th·k_hs)                       attention's probabilities, without gradient
    D_t     = Σ_s p_t[s] (log p_t[s] − log softmax_s(I[t, ·]))           over first_t ≤ s ≤ last_t; I as in select_keys.py
    ∂I[t,s] = softmax_s(I[t, ·]) Σ_s p_t[s] − p_t[s]

Queries come in blocks: of p and of I there is one block of queries × keys at a time. The definition makes p and I of all heads,
and again in the backward pass. The kernels (dense_divergence_kernel.py) add up the heads inside a tile, and make the gradients in
the forward pass, while I is there: the loss is a sum, so that its backward pass multiplies them by a number.

Shapes: B rows, T queries, S keys, H heads, W their width, J indexer heads, V their width.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ingot.kernels.attention.attend_latent import dot_products
from ingot.kernels.attention.attend_paged import DTYPES
from ingot.kernels.attention.blocks import blocks, recomputed, summed_in_float32
from ingot.kernels.sparse.select_keys import index_scores, kernel_exists

WIDEST = 256  # of an attention head: wider tiles do not fit


def visible(first_BT: Tensor, last_BT: Tensor, keys: int) -> Tensor:
    """Booleans [B, T, S]: whether each query sees each of the first keys."""
    key_S = torch.arange(keys, device=first_BT.device)
    return (key_S >= first_BT[..., None]) & (key_S <= last_BT[..., None])


def mean_of_heads_definition(
    query_BHTW: Tensor, key_BHSW: Tensor, first_BT: Tensor, last_BT: Tensor, scale: float
) -> Tensor:
    """p [B, T, S] in float32 at least."""
    seen_BTS = visible(first_BT, last_BT, key_BHSW.shape[2])
    products = dot_products(query_BHTW.flatten(0, 1)[:, :, None], key_BHSW.flatten(0, 1))[:, :, 0]
    scores_BHTS = scale * products.unflatten(0, query_BHTW.shape[:2])
    return scores_BHTS.masked_fill(~seen_BTS[:, None], -torch.inf).softmax(dim=-1).mean(dim=1)


def sum_of_divergences_definition(
    query_BTJV: Tensor,
    weight_BTJ: Tensor,
    key_BSV: Tensor,
    first_BT: Tensor,
    last_BT: Tensor,
    target_BTS: Tensor,
    counted_BT: Tensor,
) -> Tensor:
    """Σ_t D_t over the tokens that count, in float32 at least."""
    seen_BTS = visible(first_BT, last_BT, key_BSV.shape[1])
    scores_BTS = index_scores(query_BTJV, weight_BTJ, key_BSV)
    guess_BTS = scores_BTS.masked_fill(~seen_BTS, -torch.inf).log_softmax(dim=-1)
    guess_BTS = guess_BTS.masked_fill(~seen_BTS, 0)  # 0 · −∞ is not a number
    divergence_BT = (torch.xlogy(target_BTS, target_BTS) - target_BTS * guess_BTS).sum(dim=-1)
    return (divergence_BT * counted_BT).sum()


def kernel_allowed(query_BHTW: Tensor, query_BTJV: Tensor) -> bool:
    """Whether the kernels can run: CUDA, one type of at most 32 bits, heads of at most WIDEST channels."""
    if not query_BHTW.is_cuda or query_BHTW.dtype not in DTYPES or query_BTJV.dtype != query_BHTW.dtype:
        return False
    return query_BHTW.shape[-1] <= WIDEST and kernel_exists(query_BTJV.shape[-1])


def dense_divergence(
    index: tuple[Tensor, Tensor, Tensor],
    query_BHTW: Tensor,
    key_BHSW: Tensor,
    first_BT: Tensor,
    last_BT: Tensor,
    counted_BT: Tensor,
    *,
    scale: float,
    past: int,
    all_heads: Callable[[Tensor], Tensor],
) -> Tensor:
    """Σ_t D_t over the tokens that count, by the kernels where they can run.

    `index` are the indexer's queries [B, T, J, V], head weights [B, T, J] and keys [B, S, V]. Query number t of a row sees no key
    beyond past + t. `all_heads` makes the mean over these heads the mean over those of all ranks.
    """
    (rows, heads, length, _), keys = query_BHTW.shape, key_BHSW.shape[2]
    index_query, index_weight, index_key = index
    index_key = summed_in_float32(index_key)
    by_kernel = kernel_allowed(query_BHTW, index_query)
    query_BHTW, key_BHSW = query_BHTW.detach(), key_BHSW.detach().to(query_BHTW.dtype)

    def divergence(block: slice) -> Tensor:
        reach = min(past + block.stop, keys)
        sight = (first_BT[:, block], last_BT[:, block])
        heads_given = (query_BHTW[:, :, block], key_BHSW[:, :, :reach], *sight)
        index_given = (index_query[:, block], index_weight[:, block], index_key[:, :reach], *sight)
        if not by_kernel:
            with torch.no_grad():
                target_BTS = all_heads(mean_of_heads_definition(*heads_given, scale))
            return sum_of_divergences_definition(*index_given, target_BTS, counted_BT[:, block])
        from ingot.kernels.sparse.dense_divergence_kernel import mean_of_heads, sum_of_divergences

        target_BTS = all_heads(mean_of_heads(*heads_given, scale))
        return sum_of_divergences(*index_given, target_BTS, counted_BT[:, block])

    if by_kernel:
        return torch.stack([divergence(block) for block in blocks(length, rows * keys)]).sum()
    largest = rows * max(heads, index_query.shape[2]) * keys
    return torch.stack([recomputed(divergence, block) for block in blocks(length, largest)]).sum()
