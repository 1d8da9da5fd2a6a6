"""Multi-head latent attention over pages on a CUDA device, in absorbed form (mla.py).

    o_h = Σ_p softmax_p(scale · q_h·e_p) c_p        e_p = [c_p | r_p] the entry of position p ≤ q's position, c_p its latent

All heads read the same entries, so the heads of a token are just more queries of it. A tile of entries is read once and serves
as keys and as values. Pages, tables and splits are those of attend_paged_triton.py; tests compare with sparse.mix_entries.

Shapes: B rows, T new tokens, H heads, N pages, P tokens of a page, R pages of a row, L latent width, E entry width.
"""

from __future__ import annotations

import math

from torch import Tensor

from ingot.model.early import early
from ingot.model.mixers.attend_paged_triton import (
    Tile,
    choose_splits,
    combine,
    has_triton,
    on_device_of,
    power_of_two,
    precision,
    room_for_splits,
)

WIDEST_LATENT, WIDEST_TURNED = 512, 128


def latent_can(latent_width: int, turned_width: int) -> bool:
    """Whether `attend_latent_triton` takes entries like these, on a CUDA device and in 32 bits or fewer."""
    return latent_width <= WIDEST_LATENT and 0 < turned_width <= WIDEST_TURNED and has_triton()


def attend_latent_triton(
    query_BTHE: Tensor,
    entries_N1PE: Tensor,
    table_BR: Tensor,
    positions_BT: Tensor,
    *,
    latent_width: int,
    scale: float,
) -> Tensor:
    """Each query's mixture [B, T, H, L] of the latents up to its own position."""
    from ingot.model.mixers.attend_paged_kernels import latent_kernel

    rows, tokens, heads, width = query_BTHE.shape
    page, pages = entries_N1PE.shape[2], table_BR.shape[1]
    tile = choose_latent_tile(tokens * heads, power_of_two(latent_width), query_BTHE.element_size())
    blocks = -(-tokens * heads // tile.block_m)
    splits = choose_splits(rows * blocks, pages * page, tile.resident)
    out_BTHL = query_BTHE.new_empty(rows, tokens, heads, latent_width)
    parts, sums = room_for_splits(out_BTHL, splits)
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
            scale * math.log2(math.e),
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
            **early(out_BTHL),
        )
        combine(parts, sums, out_BTHL)
    return out_BTHL


def choose_latent_tile(queries: int, block_l: int, bytes_per_number: int) -> Tile:
    """The mixtures of a tile lie in registers, BLOCK_M · L float32 numbers of them; entries and queries in shared memory."""
    if bytes_per_number == 4:
        return Tile(16, 16, warps=4, stages=2, resident=1)
    if queries <= 16:
        return Tile(16, 32, warps=4, stages=5, resident=2)
    if queries <= 32 or block_l < 512:
        return Tile(32, 32, warps=8, stages=5, resident=1)
    return Tile(64, 32, warps=8, stages=5, resident=1)
