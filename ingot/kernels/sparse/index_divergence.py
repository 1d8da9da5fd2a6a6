"""The loss of DeepSeek-V3.2's indexer over chosen keys: how far its scores are from what attention looks at.

    p_t[s]  = 1/H Σ_h softmax_s(scale · q_th·e_s)                        s ∈ S_t, attention's probabilities, without gradient
    D_t     = Σ_s p_t[s] (log p_t[s] − log softmax_s(I[t, ·]))           I as in select_keys.py, the softmax over S_t
    ∂I[t,s] = softmax_s(I[t, ·]) − p_t[s]

Both parts look at the chosen keys only and hold [T, K]. The kernels (index_divergence_kernel.py) gather entries and index keys by
index: `mean_probabilities` from the sums that attention saved (sparse_attention.py), `chosen_divergence` with a backward pass of
its own, which adds to the keys' gradient atomically in float32; the last bits of that gradient depend on the programs' order.

Shapes: B rows, T queries, H heads, S keys, K chosen keys, E entry width, J indexer heads, W their width.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ingot.kernels.attention.attend_latent import dot_products, probabilities
from ingot.kernels.attention.attend_paged import DTYPES
from ingot.kernels.attention.blocks import blocks, recomputed, summed_in_float32
from ingot.kernels.sparse.select_keys import kernel_exists
from ingot.kernels.sparse.sparse_attention import gather


@torch.no_grad()
def mean_probabilities_definition(query_BTHE: Tensor, entry_BSE: Tensor, selected_BTK: Tensor, scale: float) -> Tensor:
    """p [B, T, K] in float32; zeros where nothing was chosen."""
    rows, length, heads, width = query_BTHE.shape
    parts = []
    for block in blocks(length, rows * selected_BTK.shape[2] * max(heads, width)):
        entry_BTKE = gather(entry_BSE, selected_BTK[:, block])
        seen_BTK = selected_BTK[:, block] >= 0
        some_BTK = seen_BTK | ~seen_BTK.any(dim=-1, keepdim=True)
        mean_BTK = probabilities(query_BTHE[:, block], entry_BTKE, some_BTK, scale).mean(dim=2)
        parts.append(mean_BTK.masked_fill(~seen_BTK, 0))
    return torch.cat(parts, dim=1)


@torch.no_grad()
def mean_probabilities(
    query_BTHE: Tensor,
    entry_BSE: Tensor,
    selected_BTK: Tensor,
    sums_BTH: Tensor | None,
    *,
    latent_width: int,
    scale: float,
) -> Tensor:
    """p [B, T, K] in float32: by the kernel where attention by kernels has left its sums, else by the definition."""
    if sums_BTH is None:
        return mean_probabilities_definition(query_BTHE, entry_BSE, selected_BTK, scale)
    from ingot.kernels.sparse.index_divergence_kernel import mean_probabilities_operator

    query_BTHE, sums_BTH = query_BTHE.detach(), sums_BTH.detach()
    entry_BSE = entry_BSE.detach().to(query_BTHE.dtype)
    return mean_probabilities_operator(query_BTHE, entry_BSE, selected_BTK, sums_BTH, latent_width, scale)


def chosen_divergence_definition(
    query_BTJW: Tensor, weight_BTJ: Tensor, key_BSW: Tensor, selected_BTK: Tensor, target_BTK: Tensor
) -> Tensor:
    """D [B, T] in float32, 0 for a query without keys."""
    rows, length, heads, width = query_BTJW.shape
    key_BSW = summed_in_float32(key_BSW)

    def divergence(query: Tensor, weight: Tensor, key: Tensor, selected: Tensor, target: Tensor) -> Tensor:
        products_BTJK = dot_products(query, gather(key, selected)).relu()
        scaled_BTJ = weight.to(products_BTJK.dtype) * (heads * width) ** -0.5
        with torch.autocast(products_BTJK.device.type, enabled=False):
            scores_BTK = (scaled_BTJ[:, :, None] @ products_BTJK)[:, :, 0]
        seen = selected >= 0
        some = seen | ~seen.any(dim=-1, keepdim=True)
        guess_BTK = scores_BTK.masked_fill(~some, -torch.inf).log_softmax(dim=-1)
        guess_BTK = guess_BTK.masked_fill(~seen, 0)  # 0 · −∞ is not a number
        return (torch.xlogy(target, target) - target * guess_BTK).sum(dim=-1)

    given = (query_BTJW, weight_BTJ, selected_BTK, target_BTK)
    parts = []
    for block in blocks(length, rows * selected_BTK.shape[2] * max(heads, width)):
        query, weight, selected, target = (each[:, block] for each in given)
        parts.append(recomputed(divergence, query, weight, key_BSW, selected, target))
    return torch.cat(parts, dim=1)


def kernel_allowed(query_BTJW: Tensor) -> bool:
    """Whether the kernels can run: CUDA, at most 32 bits, heads of the widths of select_keys.py."""
    return query_BTJW.is_cuda and query_BTJW.dtype in DTYPES and kernel_exists(query_BTJW.shape[-1])


def chosen_divergence(
    query_BTJW: Tensor, weight_BTJ: Tensor, key_BSW: Tensor, selected_BTK: Tensor, target_BTK: Tensor
) -> Tensor:
    """D [B, T] in float32, by the kernels where they can run, else by the definition."""
    if not kernel_allowed(query_BTJW):
        return chosen_divergence_definition(query_BTJW, weight_BTJ, key_BSW, selected_BTK, target_BTK)
    from ingot.kernels.sparse.index_divergence_kernel import chosen_divergence_forward

    heads, width = query_BTJW.shape[2:]
    scaled_BTJ = weight_BTJ.float() * (heads * width) ** -0.5
    key_BSW = key_BSW.to(query_BTJW.dtype)
    return chosen_divergence_forward(query_BTJW, scaled_BTJ, key_BSW, selected_BTK, target_BTK)[0]
