"""Latent attention in absorbed form to chosen entries only (DeepSeek-V3.2; model/mixers/sparse.py chooses them).

    o_th = Σ_{s ∈ S_t} softmax_s(scale · q_th·e_s) c_s        e_s = [c_s | r_s] the entry of key s, c_s its latent

S_t are the keys of query t, the same for all its heads: a query's heads are the rows of one matrix product with the entries.
The definition copies every query's entries together, in blocks of queries that are recomputed in the backward pass. The kernels
(sparse_attention_kernel.py, sparse_gradients_kernel.py) gather the entries by their index, a tile at a time: nothing of size
T·K·E exists, and of size T·K·H only a part in the backward pass.

    P = 2^(S − lse)     ∂S = scale · P ∘ (∂o·c − Σ_l ∂o∘o)     ∂q = ∂S e     ∂e_s = Σ_{t: s ∈ S_t} Σ_h (∂S q | P ∂o)

∂e_s is a sum over all queries that chose s. A kernel adds to it atomically in float32, so its last bits depend on the order in
which programs run, as those of the definition do on a GPU. Values and all other gradients are the same bits every time.

Shapes: B rows, T queries, H heads, S keys, K chosen keys of a query, L latent width, E = L + R entry width; pages as in
attend_paged.py. Chosen keys are int32, −1 where a query has fewer than K; a −1 may stand anywhere, at the end it costs nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ingot.kernels.allow_list import understands
from ingot.kernels.attention.attend_latent import kernel_exists, mix_entries
from ingot.kernels.attention.attend_paged import DTYPES, read_pages
from ingot.kernels.attention.attention_options import AttentionOptions
from ingot.kernels.attention.blocks import blocks, recomputed, summed_in_float32

OPTIONS = frozenset(("scale",))  # fields of AttentionOptions that the definition and the kernels understand


def sparse_attention_definition(
    query_BTHE: Tensor, entry_BSE: Tensor, selected_BTK: Tensor, options: AttentionOptions, *, latent_width: int
) -> Tensor:
    """Each query's mixture [B, T, H, L] of its chosen entries, which are copied together for it."""
    assert understands(options, OPTIONS), "the caller attends in expanded form"
    rows, length, heads, width = query_BTHE.shape
    entry_BSE = summed_in_float32(entry_BSE)

    def attend(query_BTHE: Tensor, entry_BSE: Tensor, selected_BTK: Tensor) -> Tensor:
        entry_BTKE = gather(entry_BSE, selected_BTK).to(query_BTHE.dtype)
        seen_BTK = selected_BTK >= 0
        nothing_BT1 = ~seen_BTK.any(dim=-1, keepdim=True)  # such a query mixes any entry, and has zeros instead
        mixed = mix_entries(query_BTHE, entry_BTKE, seen_BTK | nothing_BT1, latent_width, options.scale)
        return mixed.masked_fill(nothing_BT1[..., None], 0)

    ranges = blocks(length, rows * selected_BTK.shape[2] * max(heads, width))
    parts = [recomputed(attend, query_BTHE[:, part], entry_BSE, selected_BTK[:, part]) for part in ranges]
    return torch.cat(parts, dim=1)


def gather(x_BSE: Tensor, selected_BTK: Tensor) -> Tensor:
    """Rows [B, T, K, E] of x; the first row where nothing was chosen."""
    rows, keys, width = x_BSE.shape
    offset = keys * torch.arange(rows, device=x_BSE.device)[:, None, None]
    flat = (selected_BTK.clamp_min(0) + offset).flatten()
    return x_BSE.reshape(rows * keys, width).index_select(0, flat).view(*selected_BTK.shape, width)


def kernel_allowed(query: Tensor, latent_width: int, rotated_width: int, options: AttentionOptions) -> bool:
    """Whether the kernels can run: CUDA, at most 32 bits, OPTIONS, and entries of the widths of attend_latent.py."""
    if not query.is_cuda or query.dtype not in DTYPES or not understands(options, OPTIONS):
        return False
    return kernel_exists(latent_width, rotated_width)


def sparse_attention(
    query_BTHE: Tensor, entry_BSE: Tensor, selected_BTK: Tensor, options: AttentionOptions, *, latent_width: int
) -> tuple[Tensor, Tensor | None]:
    """The mixtures [B, T, H, L], by the kernels where they can run, else by the definition.

    From the kernels also the logarithms to base 2 of the softmaxes' sums [B, T, H] (index_divergence.py).
    """
    if not kernel_allowed(query_BTHE, latent_width, query_BTHE.shape[-1] - latent_width, options):
        return sparse_attention_definition(
            query_BTHE, entry_BSE, selected_BTK, options, latent_width=latent_width
        ), None
    from ingot.kernels.sparse.sparse_attention_kernel import sparse_attention_forward

    entry_BSE = entry_BSE.to(query_BTHE.dtype)
    mixed, sums = sparse_attention_forward(query_BTHE, entry_BSE, selected_BTK, latent_width, options.scale)
    return mixed, sums


def sparse_attention_pages(
    query_BTHE: Tensor,
    entries_N1PE: Tensor,
    table_BR: Tensor,
    selected_BTK: Tensor,
    options: AttentionOptions,
    *,
    latent_width: int,
    reach: int,
) -> Tensor:
    """The same over pages, for sampling: chosen keys are positions below `reach`. No gradient."""
    if not kernel_allowed(query_BTHE, latent_width, query_BTHE.shape[-1] - latent_width, options):
        entry_BSE = read_pages(entries_N1PE, table_BR, reach)[:, 0].to(query_BTHE.dtype)
        return sparse_attention_definition(query_BTHE, entry_BSE, selected_BTK, options, latent_width=latent_width)
    from ingot.kernels.sparse.sparse_attention_kernel import launch_pages

    return launch_pages(query_BTHE, entries_N1PE, table_BR, selected_BTK, latent_width, options.scale)
