"""The scores of DeepSeek-V3.2's indexer, and each query's best keys by them (model/mixers/indexer.py).

    I[t, s] = Σ_j (n d)^-½ w_tj · relu(q_tj·k_s)                j over the n heads of width d, in float32
    S_t     = the K keys s with the largest I[t, s] among first_t ≤ s ≤ last_t; all of them where there are no more

The definition makes the products of all heads, [T, n, S]. The kernels (select_keys_kernel.py) add up the heads inside a tile and
write [T, S], in blocks of queries; tiles that no query of theirs sees are skipped. Then each query's K-th largest score is found
bit by bit, from the highest: a score of 32 bits needs at most 32 counts of the row, which lies in registers. Of keys that are
tied for the last place the kernels take the earliest, the definition any.

Shapes: B rows, T queries, H = n heads, W = d width, S keys, K keys to keep, N queries of all rows; pages as in attend_paged.py.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from ingot.kernels.attention.attend_latent import dot_products
from ingot.kernels.attention.attend_paged import DTYPES, read_pages
from ingot.kernels.attention.blocks import blocks
from ingot.kernels.launch import has_triton

WIDEST = 256  # of an indexer head: wider tiles do not fit
MOST_KEPT = (
    8192  # keys of a query: the kernel counts the scores that it compares, at least four times as many, in 16 bits
)
MOST_TOKENS = 8  # of a row, for which the kernel over pages reads the keys once for each


def index_scores(query_BTHW: Tensor, weight_BTH: Tensor, key_BSW: Tensor) -> Tensor:
    """I [B, T, S] of all keys, in float32."""
    heads, width = query_BTHW.shape[2:]
    products_BTHS = dot_products(query_BTHW, key_BSW).relu()
    weight_BTH = weight_BTH.to(products_BTHS.dtype) * (heads * width) ** -0.5  # both factors are positive
    with torch.autocast(products_BTHS.device.type, enabled=False):
        return (weight_BTH[:, :, None] @ products_BTHS)[:, :, 0]


@torch.no_grad()
def select_keys_definition(
    query_BTHW: Tensor,
    weight_BTH: Tensor,
    key_BSW: Tensor,
    first_BT: Tensor,
    last_BT: Tensor,
    *,
    keep: int,
    past: int,
) -> Tensor:
    """The best `keep` keys of every query [B, T, K], int32, in no particular order."""
    rows, length, heads, _ = query_BTHW.shape
    keys, chosen = key_BSW.shape[1], []
    for block in blocks(length, rows * heads * keys):
        reach = min(past + block.stop, keys)
        scores_BTS = index_scores(query_BTHW[:, block], weight_BTH[:, block], key_BSW[:, :reach])
        key_S = torch.arange(reach, device=scores_BTS.device)
        seen_BTS = (key_S >= first_BT[:, block, None]) & (key_S <= last_BT[:, block, None])
        best = scores_BTS.masked_fill(~seen_BTS, -torch.inf).topk(min(keep, reach), dim=-1, sorted=False)
        indices = best.indices.int().masked_fill(best.values == -torch.inf, -1)
        chosen.append(pad(indices, (0, keep - indices.shape[-1]), value=-1))
    return torch.cat(chosen, dim=1)


def kernel_exists(width: int, keep: int = 1) -> bool:
    """Whether the kernels take indexer heads of this width, and so many keys to keep."""
    return width <= WIDEST and keep <= MOST_KEPT and has_triton()


def kernel_allowed(query_BTHW: Tensor, keep: int) -> bool:
    """Whether the kernels can run: CUDA, at most 32 bits, heads of at most WIDEST channels, at most MOST_KEPT keys."""
    return query_BTHW.is_cuda and query_BTHW.dtype in DTYPES and kernel_exists(query_BTHW.shape[-1], keep)


@torch.no_grad()
def select_keys(
    query_BTHW: Tensor,
    weight_BTH: Tensor,
    key_BSW: Tensor,
    first_BT: Tensor,
    last_BT: Tensor,
    *,
    keep: int,
    past: int,
) -> Tensor:
    """The best `keep` keys of every query [B, T, K], int32, −1 where it sees fewer.

    A query sees the keys `first_BT` … `last_BT`; number t of a row none beyond past + t, which bounds the work of its block.
    """
    given = (query_BTHW, weight_BTH, key_BSW, first_BT, last_BT)
    if not kernel_allowed(query_BTHW, keep):
        return select_keys_definition(*given, keep=keep, past=past)
    from ingot.kernels.sparse.select_keys_kernel import select_keys_operator

    query_BTHW, weight_BTH, key_BSW = (x.detach() for x in (query_BTHW, weight_BTH, key_BSW))
    return select_keys_operator(
        query_BTHW, weight_BTH, key_BSW.to(query_BTHW.dtype), first_BT.int(), last_BT.int(), keep, past
    )


def reads_pages(query_BTHW: Tensor, keep: int) -> bool:
    """Whether `select_keys_pages` reads the keys where they lie."""
    return kernel_allowed(query_BTHW, keep) and query_BTHW.shape[1] <= MOST_TOKENS


@torch.no_grad()
def select_keys_pages(
    query_BTHW: Tensor,
    weight_BTH: Tensor,
    keys_N1PW: Tensor,
    table_BR: Tensor,
    positions_BT: Tensor,
    *,
    keep: int,
    reach: int,
) -> Tensor:
    """The same for new tokens at `positions_BT`, all below `reach`, over pages: each sees every position up to its own."""
    if reads_pages(query_BTHW, keep):
        from ingot.kernels.sparse.select_keys_kernel import select_from_pages

        return select_from_pages(query_BTHW, weight_BTH, keys_N1PW, table_BR, positions_BT, keep)
    key_BSW = read_pages(keys_N1PW, table_BR, reach)[:, 0].to(query_BTHW.dtype)
    first_BT = torch.zeros_like(positions_BT)
    return select_keys(query_BTHW, weight_BTH, key_BSW, first_BT, positions_BT, keep=keep, past=reach)
