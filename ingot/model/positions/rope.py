"""Rotary positions: rotate each pair of channels by an angle that grows with the position.

For pair i of r/2,  angle(p) = p · f_i  with  f_i = θ^(−2i/r)  (scaling.py: slower ones for longer texts), and

    (a, b)  ->  (a cos − b sin,  b cos + a sin)

so that a query at p and a key at q score by their distance p − q only (Su et al., arXiv 2104.09864; `rotate` is in
kernels/layer/rotate.py). A pair is channels i and i + r/2 ("halves": Llama, Qwen, …) or channels 2i and 2i + 1 ("interleaved":
DeepSeek, Llama 4). Only the first r channels of a head are rotated, and the frequencies are those of a head of width r. Angles
are computed in float32 whatever the dtype of the activations: bfloat16 cannot tell position 1000 from 1001.

Shapes: B rows, T tokens, R = r/2 pairs of channels; x is [B, heads, T, width].
"""

from __future__ import annotations

import torch
from torch import Tensor

from ingot.model.context import Context
from ingot.model.positions.config import RopeConfig
from ingot.model.positions.scaling import LongRopeScaling


def rotation(context: Context, rope: RopeConfig, width: int) -> tuple[Tensor, Tensor]:
    """cos and sin [B, 1, T, R] of this pass for heads of `width` channels, times the scaling's temperature."""
    # plain values, not the config itself: compiled code follows a dictionary's keys and cannot follow a config's hash
    scaling = None if rope.scaling is None else tuple(rope.scaling.__dict__.values())
    key = ("rotation", rope.base, rope.pairing, rope.share, scaling, width)
    return context.once(key, lambda: _rotation(context, rope, width))


def _rotation(context: Context, rope: RopeConfig, width: int) -> tuple[Tensor, Tensor]:
    positions_BT = context.positions_BT
    short_R, long_R = frequencies(rope, rope.rotated(width), positions_BT.device)
    if isinstance(rope.scaling, LongRopeScaling):
        beyond_BT = context.own(_length_BT(context.whole)) > rope.scaling.original_context
        speed = torch.where(beyond_BT[:, None, :, None], long_R, short_R)
    else:
        speed = short_R
    angles_B1TR = positions_BT.float()[:, None, :, None] * speed
    factor = 1.0 if rope.scaling is None else rope.scaling.temperature()
    cos, sin = angles_B1TR.cos(), angles_B1TR.sin()
    return (cos, sin) if factor == 1.0 else (cos * factor, sin * factor)


def frequencies(rope: RopeConfig, rotated: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Radians per position [R] for texts up to the original context, and for longer ones (they differ in LongRoPE)."""
    exponents_R = torch.arange(0, rotated, 2, dtype=torch.float32, device=device) / rotated
    wave_R = rope.base**exponents_R
    if rope.scaling is None:
        return 1.0 / wave_R, 1.0 / wave_R
    short_R = rope.scaling.frequencies(wave_R, rope.base)
    return short_R, rope.scaling.long_frequencies(wave_R) if isinstance(rope.scaling, LongRopeScaling) else short_R


def _length_BT(context: Context) -> Tensor:
    """One more than the largest position that this pass gives to each token's own sequence.

    LongRoPE chooses its divisors by it. It is decided for each document of a packed row and for each row of a batch by
    itself: what a sequence computes then does not depend on what it shares a batch with.
    """
    positions_BT, documents_BT = context.positions_BT, context.documents_BT
    if documents_BT is None:
        if context.lengths_B is not None:  # the rest of a row is padding, whatever its positions
            token = torch.arange(positions_BT.shape[1], device=positions_BT.device)
            positions_BT = positions_BT.masked_fill(token >= context.lengths_B[:, None], 0)
        return positions_BT.amax(dim=1, keepdim=True) + 1
    changed = documents_BT[:, 1:] != documents_BT[:, :-1]
    run_BT = torch.nn.functional.pad(changed.cumsum(dim=1), (1, 0))
    largest = torch.zeros_like(positions_BT).scatter_reduce(1, run_BT, positions_BT, "amax")
    return largest.gather(1, run_BT) + 1
