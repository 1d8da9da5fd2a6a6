"""The frequency of each pair of channels in rotary positions, and its scaling for longer texts.

Without scaling pair i of r/2 rotates by  f_i = θ^(−2i/r)  radians per position; its wavelength is 2π/f_i. With s the factor
by which the context grows and L₀ the context before:

    linear    f / s                                                                        (arXiv 2306.15595)
    llama3    f where the wavelength is below L₀/high, f/s where it is above L₀/low,
              between them (1 − m)·f/s + m·f  with  m = (L₀/wavelength − low)/(high − low)  (arXiv 2407.21783)
    yarn      (1 − ramp)·f + ramp·f/s, the ramp going from 0 to 1 between the pairs that rotate β_fast and β_slow times
              in L₀ positions; cos and sin are multiplied by a temperature                  (arXiv 2309.00071)
    longrope  f / d, with a list of divisors d for texts up to L₀ and another for longer ones; also a temperature
                                                                                            (arXiv 2402.13753)

Everything is float32 in the order of operations that the reference uses: at position 30,000 one unit in the last place of a
frequency is already 1e-3 radians. Shapes: R = r/2 pairs of channels.
"""

from __future__ import annotations

import math
from functools import cache
from typing import assert_never

import torch
from torch import Tensor

from ingot.model.positions.config import (
    LinearScaling,
    Llama3Scaling,
    LongRopeScaling,
    RopeConfig,
    Scaling,
    YarnScaling,
)


def frequencies(rope: RopeConfig, rotated: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Radians per position [R] for texts up to the original context, and for longer ones (they differ in LongRoPE)."""
    exponents_R = torch.arange(0, rotated, 2, dtype=torch.float32, device=device) / rotated
    wave_R = rope.base**exponents_R
    scaling = rope.scaling
    if isinstance(scaling, LongRopeScaling):
        return _longrope(wave_R, scaling.short_factors), _longrope(wave_R, scaling.long_factors)
    one = _scaled(wave_R, rope.base, rotated, scaling)
    return one, one


def temperature(scaling: Scaling | None) -> float:
    """The factor on cos and sin."""
    if isinstance(scaling, YarnScaling):
        if scaling.attention_factor is not None:
            return scaling.attention_factor
        if scaling.mscale and scaling.mscale_all_dim:
            return yarn_scale(scaling.factor, scaling.mscale) / yarn_scale(scaling.factor, scaling.mscale_all_dim)
        return yarn_scale(scaling.factor)
    if isinstance(scaling, LongRopeScaling):
        if scaling.attention_factor is not None:
            return scaling.attention_factor
        growth = scaling.context / scaling.original_context
        return math.sqrt(1 + math.log(growth) / math.log(scaling.original_context)) if growth > 1 else 1.0
    return 1.0


def yarn_scale(factor: float, multiplier: float = 1.0) -> float:
    """0.1·m·ln(s) + 1: YaRN's temperature. MLA multiplies its softmax scale by the square of it (m = mscale_all_dim)."""
    return 0.1 * multiplier * math.log(factor) + 1 if factor > 1 else 1.0


def _scaled(
    wave_R: Tensor, base: float, rotated: int, scaling: LinearScaling | Llama3Scaling | YarnScaling | None
) -> Tensor:
    """The frequencies, given θ^(2i/r)."""
    plain_R = 1.0 / wave_R
    match scaling:
        case None:
            return plain_R
        case LinearScaling():
            return plain_R / scaling.factor
        case Llama3Scaling():
            return _llama3(plain_R, scaling)
        case YarnScaling():
            ramp_R = _yarn_ramp(len(wave_R), base, rotated, scaling, wave_R.device)
            return 1.0 / (scaling.factor * wave_R) * ramp_R + plain_R * (1 - ramp_R)
        case _:
            assert_never(scaling)


def _llama3(plain_R: Tensor, scaling: Llama3Scaling) -> Tensor:
    wavelength_R = 2 * math.pi / plain_R
    long_R = wavelength_R > scaling.original_context / scaling.low
    result_R = torch.where(long_R, plain_R / scaling.factor, plain_R)
    if scaling.high == scaling.low:  # no middle band, and the blend would be 0/0 (Llama 4)
        return result_R
    blend_R = (scaling.original_context / wavelength_R - scaling.low) / (scaling.high - scaling.low)
    middle_R = ~long_R & ~(wavelength_R < scaling.original_context / scaling.high)
    return torch.where(middle_R, (1 - blend_R) * plain_R / scaling.factor + blend_R * plain_R, result_R)


def _yarn_ramp(pairs: int, base: float, rotated: int, scaling: YarnScaling, device: torch.device) -> Tensor:
    """0 for the pairs that are kept, 1 for those that are slowed down by the whole factor."""

    def pair_that_turns(times: float) -> float:
        return rotated * math.log(scaling.original_context / (times * 2 * math.pi)) / (2 * math.log(base))

    low, high = pair_that_turns(scaling.beta_fast), pair_that_turns(scaling.beta_slow)
    if scaling.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rotated - 1)
    if low == high:
        high += 0.001  # a step instead of a ramp
    index_R = torch.arange(pairs, dtype=torch.float32, device=device)
    return ((index_R - low) / (high - low)).clamp(0, 1)


def _longrope(wave_R: Tensor, divisors: tuple[float, ...]) -> Tensor:
    return 1.0 / (_on_device(divisors, wave_R.device) * wave_R)


@cache
def _on_device(values: tuple[float, ...], device: torch.device) -> Tensor:
    """Sent once: every pass needs them, and while a CUDA graph is captured nothing can be sent."""
    with torch.inference_mode(False):
        return torch.tensor(values, dtype=torch.float32, device=device)
