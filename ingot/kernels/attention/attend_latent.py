"""Multi-head latent attention in absorbed form, over pages (DeepSeek-V2, arXiv 2405.04434; model/mixers/mla.py).

    o_h = Σ_p softmax_p(scale · q_h·e_p) c_p        e_p = [c_p | r_p] the entry of position p ≤ q's position, c_p its latent

All heads read the same entries, so the heads of a token are just more queries of it. The kernel (attend_paged_kernel.py) reads a
tile of entries once and uses it as keys and as values. Pages, tables and splits are those of attend_paged.py.

Shapes: B rows, T new tokens, H heads, N pages, P tokens of a page, R pages of a row, S keys, L latent width, E entry width.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from ingot.kernels.allow_list import understands
from ingot.kernels.attention.attend_paged import (
    DTYPES,
    PageTile,
    choose_splits,
    combine,
    precision,
    read_pages,
    split_buffers,
)
from ingot.kernels.attention.attention_options import AttentionOptions
from ingot.kernels.launch import dependent_launch, has_triton, on_device_of, power_of_two

OPTIONS = frozenset(("scale",))  # fields of AttentionOptions that the definition and the kernel understand
WIDEST_LATENT, WIDEST_ROTATED = 512, 128


def attend_latent_definition(
    query_BTHE: Tensor,
    entries_N1PE: Tensor,
    table_BR: Tensor,
    positions_BT: Tensor,
    options: AttentionOptions,
    *,
    latent_width: int,
    reach: int,
) -> Tensor:
    """Each query's mixture [B, T, H, L] of the latents up to its own position."""
    assert understands(options, OPTIONS), "the caller attends in expanded form"
    entry_BSE = read_pages(entries_N1PE, table_BR, reach)[:, 0].to(query_BTHE.dtype)
    seen_BTS = torch.arange(reach, device=entry_BSE.device) <= positions_BT[:, :, None]
    return mix_entries(query_BTHE, entry_BSE, seen_BTS, latent_width, options.scale)


def mix_entries(query_BTHE: Tensor, entry: Tensor, seen_BTS: Tensor, latent_width: int, scale: float) -> Tensor:
    """Each query's mixture [B, T, H, L] of the latents that it sees; entries as the keys of `dot_products`."""
    weight_BTHS = probabilities(query_BTHE, entry, seen_BTS, scale).to(query_BTHE.dtype)
    latent = entry[..., :latent_width].to(query_BTHE.dtype)
    if latent.dim() == 4:
        return weight_BTHS @ latent
    return (weight_BTHS.flatten(1, 2) @ latent).unflatten(1, weight_BTHS.shape[1:3])


def probabilities(query_BTHE: Tensor, entry: Tensor, seen_BTS: Tensor, scale: float) -> Tensor:
    """softmax_s(scale · q·e_s) [B, T, H, S] in float32 over what each query sees."""
    scores_BTHS = scale * dot_products(query_BTHE, entry)
    return scores_BTHS.masked_fill(~seen_BTS[:, :, None], -torch.inf).softmax(dim=-1)


def dot_products(query_BTHW: Tensor, key: Tensor) -> Tensor:
    """q·k [B, T, H, S] in float32, also under autocast; keys are [B, S, W] of the row or [B, T, S, W] of each query."""
    key = key.to(query_BTHW.dtype)
    if key.dim() == 3:
        return Product.apply(query_BTHW.flatten(1, 2), key).unflatten(1, query_BTHW.shape[1:3])  # type: ignore[no-untyped-call]
    flat = Product.apply(query_BTHW.flatten(0, 1), key.flatten(0, 1))  # type: ignore[no-untyped-call]
    return flat.unflatten(0, query_BTHW.shape[:2])


class Product(torch.autograd.Function):
    """a bᵀ of batches of matrices, added up and returned in float32 whatever the inputs (float64 stays).

    CUDA multiplies 16-bit inputs at full speed and keeps its float32 sums; an ordinary product would round them to 16 bits.
    """

    @staticmethod
    def forward(state: FunctionCtx, a_NTW: Tensor, b_NSW: Tensor) -> Tensor:
        state.save_for_backward(a_NTW, b_NSW)
        with torch.autocast(a_NTW.device.type, enabled=False):
            if a_NTW.is_cuda and a_NTW.dtype.itemsize == 2:
                return torch.bmm(a_NTW, b_NSW.mT, out_dtype=torch.float32)
            dtype = torch.promote_types(a_NTW.dtype, torch.float32)
            return a_NTW.to(dtype) @ b_NSW.to(dtype).mT

    @staticmethod
    def backward(state: Any, gradient_NTS: Tensor) -> tuple[Tensor, Tensor]:
        a_NTW, b_NSW = state.saved_tensors
        with torch.autocast(a_NTW.device.type, enabled=False):
            gradient = gradient_NTS.to(a_NTW.dtype)
            return gradient @ b_NSW, gradient.mT @ a_NTW


def kernel_exists(latent_width: int, rotated_width: int) -> bool:
    """Whether the kernel takes entries of these widths."""
    return latent_width <= WIDEST_LATENT and 0 < rotated_width <= WIDEST_ROTATED and has_triton()


def kernel_allowed(query_BTHE: Tensor, latent_width: int, options: AttentionOptions) -> bool:
    """Whether the kernel can run: CUDA, at most 32 bits, OPTIONS, and the widths of `kernel_exists`."""
    if not query_BTHE.is_cuda or query_BTHE.dtype not in DTYPES or not understands(options, OPTIONS):
        return False
    return kernel_exists(latent_width, query_BTHE.shape[-1] - latent_width)


def attend_latent(
    query_BTHE: Tensor,
    entries_N1PE: Tensor,
    table_BR: Tensor,
    positions_BT: Tensor,
    options: AttentionOptions,
    *,
    latent_width: int,
    reach: int,
) -> Tensor:
    """Attention by the kernel where it can run, else by the definition. The pages already hold the new tokens' entries."""
    given = (query_BTHE, entries_N1PE, table_BR, positions_BT, options)
    if not kernel_allowed(query_BTHE, latent_width, options):
        return attend_latent_definition(*given, latent_width=latent_width, reach=reach)
    return launch(*given, latent_width=latent_width)


def launch(
    query_BTHE: Tensor,
    entries_N1PE: Tensor,
    table_BR: Tensor,
    positions_BT: Tensor,
    options: AttentionOptions,
    *,
    latent_width: int,
) -> Tensor:
    """Each query's mixture [B, T, H, L], by the kernels."""
    from ingot.kernels.attention.attend_paged_kernel import latent_kernel

    rows, tokens, heads, width = query_BTHE.shape
    page, pages = entries_N1PE.shape[2], table_BR.shape[1]
    tile = choose_latent_tile(tokens * heads, power_of_two(latent_width), query_BTHE.element_size())
    blocks = -(-tokens * heads // tile.block_m)
    splits = choose_splits(rows * blocks, pages * page, tile.resident)
    out_BTHL = query_BTHE.new_empty(rows, tokens, heads, latent_width)
    parts, sums = split_buffers(out_BTHL, splits)
    with on_device_of(out_BTHL):
        latent_kernel[(blocks * splits, rows)](
            query_BTHE,
            entries_N1PE,
            table_BR.contiguous(),
            positions_BT.contiguous(),
            parts,
            sums,
            tokens,
            heads,
            pages,
            options.scale * math.log2(math.e),
            *query_BTHE.stride(),
            entries_N1PE.stride(0),
            PAGE=page,
            L=latent_width,
            R=width - latent_width,
            BLOCK_L=power_of_two(latent_width),
            BLOCK_R=power_of_two(width - latent_width),
            SPLITS=splits,
            PRECISION=precision(query_BTHE),
            BLOCK_M=tile.block_m,
            BLOCK_N=tile.block_n,
            num_warps=tile.warps,
            num_stages=tile.stages,
            **dependent_launch(out_BTHL),
        )
        combine(parts, sums, out_BTHL)
    return out_BTHL


def choose_latent_tile(queries: int, block_l: int, bytes_per_number: int) -> PageTile:
    """The mixtures of a tile lie in registers, BLOCK_M · L float32 numbers of them; entries and queries in shared memory."""
    if bytes_per_number == 4:
        return PageTile(16, 16, warps=4, stages=2, resident=1)
    if queries <= 16:
        return PageTile(16, 32, warps=4, stages=5, resident=2)
    if queries <= 32 or block_l < 512:
        return PageTile(32, 32, warps=8, stages=5, resident=1)
    return PageTile(64, 32, warps=8, stages=5, resident=1)
