"""Quantises weights to 8 or 4 bits (packed_linear.py unpacks them again).

    8 bits, symmetric, one scale per output:      q = clamp(round(w / s), −127, 127),    s = max|w| / 127,         ŵ = s·q
    4 bits, asymmetric, per group of G inputs:    u = clamp(round((w − m) / s), 0, 15),  s = (max w − m) / 15,     ŵ = s·u + m
                                                                                         m = min w

Neither is further from w than s/2 (plus the rounding of float32). Eight bits are those of LLM.int8 (Dettmers et al., arXiv
2208.07339) without its outliers in higher precision; four bits have the form of GGUF's Q4_1 and of AWQ's and GPTQ's kernels.
Scales and minimums are float32: at G = 128 a weight of 4 bits takes 4.5.

A model from quantisation-aware training (model/quantise.py) has ŵ = s·q with −7 ≤ q ≤ 7: `pack_symmetric` keeps exactly
those, as u = q + 7 and m = −7s.

Two integers of 4 bits share a byte: byte j of a group has u_j in its low half and u_{j + G/2} in its high half, so that each
half of the bytes belongs to neighbouring inputs. Shapes: O outputs, I inputs, J = I / G groups.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ingot.kernels.quantised.packed_linear import Packed

LARGEST_8, LARGEST_4 = 127, 15
TINY = torch.finfo(torch.float32).tiny  # weights that are all equal have scale 0
SMALLEST_GROUP = 32


def group_for(inputs: int, most: int) -> int | None:
    """The largest power of two up to `most` that divides the inputs; None if that is less than 32."""
    group = min(most, inputs & -inputs)
    return group if group >= SMALLEST_GROUP else None


def pack_8(weight_OI: Tensor) -> Packed:
    """8 bits with a scale per output."""
    weight_OI = weight_OI.float()
    scales_O = weight_OI.abs().amax(dim=1) / LARGEST_8
    integers_OI = (weight_OI / scales_O.clamp_min(TINY)[:, None]).round().clamp(-LARGEST_8, LARGEST_8)
    return Packed(integers_OI.to(torch.int8), scales_O)


def pack_4(weight_OI: Tensor, group: int) -> Packed:
    """4 bits with a scale and a minimum per group."""
    weight_OJG = weight_OI.float().unflatten(1, (-1, group))
    low_OJ, high_OJ = weight_OJG.aminmax(dim=2)
    scales_OJ = (high_OJ - low_OJ) / LARGEST_4
    steps = scales_OJ.clamp_min(TINY)[..., None]
    integers_OJG = ((weight_OJG - low_OJ[..., None]) / steps).round().clamp(0, LARGEST_4)
    return Packed(_join(integers_OJG), scales_OJ, low_OJ)


def pack_symmetric(integers_OJG: Tensor, scales_OJ: Tensor) -> Packed:
    """Integers from −7 to 7 that were chosen before, in the form of 4 bits."""
    return Packed(_join(integers_OJG + 7), scales_OJ, -7 * scales_OJ)


def _join(integers_OJG: Tensor) -> Tensor:
    low, high = integers_OJG.to(torch.uint8).chunk(2, dim=2)
    return (low | (high << 4)).flatten(1)
