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
frequency is already 1e-3 radians. A scaling of your own is a class in a file: `scaling: {kind: file.py:Name}`.

Shapes: R = r/2 pairs of channels.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from functools import cache
from typing import Annotated, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from ingot.workspace.kinds import Part, Parts


class ScalingConfig(Part):
    """Base of the scalings: what they make of the frequencies, and of cos and sin."""

    kind: str = Field("", description="which scaling this is: a name, or file.py:Name")

    @abstractmethod
    def frequencies(self, wave_R: Tensor, base: float) -> Tensor:
        """Radians per position of each pair, given wave_R = θ^(2i/r) and θ itself; 1/wave_R without scaling."""

    def temperature(self) -> float:
        """The factor on cos and sin."""
        return 1.0

    def describe(self) -> str:
        """The scaling in a few words, for `ingot model show`."""
        return self.short_name


class LinearScaling(ScalingConfig):
    """Every frequency divided by the factor: position interpolation (arXiv 2306.15595)."""

    kind: Literal["linear"] = Field("linear", description="which scaling this is")
    factor: float = Field(gt=0, description="how many times longer the context becomes")

    def frequencies(self, wave_R: Tensor, base: float) -> Tensor:
        return 1.0 / wave_R / self.factor

    def describe(self) -> str:
        return f"{self.short_name} ×{self.factor:g}"


class Llama3Scaling(ScalingConfig):
    """Low frequencies divided, high ones kept, a blend between: Llama 3.1 (arXiv 2407.21783)."""

    kind: Literal["llama3"] = Field("llama3", description="which scaling this is")
    factor: float = Field(gt=0, description="divisor of the low frequencies")
    low: float = Field(1.0, gt=0, description="wavelengths longer than original_context / low are divided")
    high: float = Field(4.0, gt=0, description="wavelengths shorter than original_context / high are kept")
    original_context: int = Field(gt=0, description="length of the training before the extension")

    def frequencies(self, wave_R: Tensor, base: float) -> Tensor:
        plain_R = 1.0 / wave_R
        wavelength_R = 2 * math.pi / plain_R
        long_R = wavelength_R > self.original_context / self.low
        result_R = torch.where(long_R, plain_R / self.factor, plain_R)
        if self.high == self.low:  # no middle band, and the blend would be 0/0 (Llama 4)
            return result_R
        blend_R = (self.original_context / wavelength_R - self.low) / (self.high - self.low)
        middle_R = ~long_R & ~(wavelength_R < self.original_context / self.high)
        return torch.where(middle_R, (1 - blend_R) * plain_R / self.factor + blend_R * plain_R, result_R)

    def describe(self) -> str:
        return f"{self.short_name} ×{self.factor:g}"


class YarnScaling(ScalingConfig):
    """YaRN (arXiv 2309.00071): a ramp over the frequencies, and a temperature on cos and sin."""

    kind: Literal["yarn"] = Field("yarn", description="which scaling this is")
    factor: float = Field(gt=0, description="how many times longer the context becomes")
    original_context: int = Field(gt=0, description="length of the training before the extension")
    beta_fast: float = Field(32.0, gt=0, description="channels that make more rotations than this are kept")
    beta_slow: float = Field(
        1.0, gt=0, description="channels that make fewer rotations than this are divided by factor"
    )
    truncate: bool = Field(True, description="round the ends of the ramp to whole channels")
    attention_factor: float | None = Field(
        None, gt=0, description="factor on cos and sin; null: from mscale, or else 0.1·ln(factor) + 1"
    )
    mscale: float | None = Field(None, description="DeepSeek: m in 0.1·m·ln(factor) + 1, the numerator of the factor")
    mscale_all_dim: float | None = Field(
        None, description="DeepSeek: the same in the denominator; its square multiplies the softmax scale of MLA"
    )

    def frequencies(self, wave_R: Tensor, base: float) -> Tensor:
        plain_R, ramp_R = 1.0 / wave_R, self._ramp(wave_R, base)
        return 1.0 / (self.factor * wave_R) * ramp_R + plain_R * (1 - ramp_R)

    def temperature(self) -> float:
        if self.attention_factor is not None:
            return self.attention_factor
        if self.mscale and self.mscale_all_dim:
            return yarn_scale(self.factor, self.mscale) / yarn_scale(self.factor, self.mscale_all_dim)
        return yarn_scale(self.factor)

    def describe(self) -> str:
        return f"{self.short_name} ×{self.factor:g}"

    def _ramp(self, wave_R: Tensor, base: float) -> Tensor:
        """0 for the pairs that are kept, 1 for those that are slowed down by the whole factor."""
        rotated = 2 * len(wave_R)

        def pair_that_turns(times: float) -> float:
            return rotated * math.log(self.original_context / (times * 2 * math.pi)) / (2 * math.log(base))

        low, high = pair_that_turns(self.beta_fast), pair_that_turns(self.beta_slow)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, rotated - 1)
        if low == high:
            high += 0.001  # a step instead of a ramp
        index_R = torch.arange(len(wave_R), dtype=torch.float32, device=wave_R.device)
        return ((index_R - low) / (high - low)).clamp(0, 1)


class LongRopeScaling(ScalingConfig):
    """LongRoPE (arXiv 2402.13753): a searched divisor per frequency, one list for short texts and one for long."""

    kind: Literal["longrope"] = Field("longrope", description="which scaling this is")
    short_factors: tuple[float, ...] = Field(description="divisors while no position passes original_context")
    long_factors: tuple[float, ...] = Field(description="divisors for longer inputs")
    original_context: int = Field(gt=0, description="length of the training before the extension")
    context: int = Field(gt=0, description="the extended length")
    attention_factor: float | None = Field(
        None, gt=0, description="factor on cos and sin; null: sqrt(1 + ln(context/original) / ln(original))"
    )

    def frequencies(self, wave_R: Tensor, base: float) -> Tensor:
        return 1.0 / (_on_device(self.short_factors, wave_R.device) * wave_R)

    def long_frequencies(self, wave_R: Tensor) -> Tensor:
        """The frequencies for texts beyond the original context."""
        return 1.0 / (_on_device(self.long_factors, wave_R.device) * wave_R)

    def temperature(self) -> float:
        if self.attention_factor is not None:
            return self.attention_factor
        growth = self.context / self.original_context
        return math.sqrt(1 + math.log(growth) / math.log(self.original_context)) if growth > 1 else 1.0

    def describe(self) -> str:
        return f"{self.short_name} ×{self.context / self.original_context:g}"

    @model_validator(mode="after")
    def _lists_match(self) -> LongRopeScaling:
        if len(self.short_factors) != len(self.long_factors):
            raise ValueError(
                f"short_factors has {len(self.short_factors)} numbers, long_factors {len(self.long_factors)}"
            )
        return self


SCALINGS = Parts(
    ScalingConfig,  # type: ignore[type-abstract]
    "position scaling",
    (LinearScaling, Llama3Scaling, YarnScaling, LongRopeScaling),
)
AnyScaling = Annotated[ScalingConfig, SCALINGS]


def yarn_scale(factor: float, multiplier: float = 1.0) -> float:
    """0.1·m·ln(s) + 1: YaRN's temperature. MLA multiplies its softmax scale by the square of it (m = mscale_all_dim)."""
    return 0.1 * multiplier * math.log(factor) + 1 if factor > 1 else 1.0


@cache
def _on_device(values: tuple[float, ...], device: torch.device) -> Tensor:
    """Sent once: every pass needs them, and while a CUDA graph is captured nothing can be sent."""
    with torch.inference_mode(False):
        return torch.tensor(values, dtype=torch.float32, device=device)
