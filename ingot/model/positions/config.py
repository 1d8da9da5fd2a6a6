"""Rotary positions as data: base, pairing, rotated share, and how to scale them to longer texts."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from ingot.workspace.config import Config


class LinearScaling(Config):
    """Every frequency divided by the factor: position interpolation (arXiv 2306.15595)."""

    kind: Literal["linear"] = Field("linear", description="which scaling this is")
    factor: float = Field(gt=0, description="how many times longer the context becomes")


class Llama3Scaling(Config):
    """Low frequencies divided, high ones kept, a blend between: Llama 3.1 (arXiv 2407.21783)."""

    kind: Literal["llama3"] = Field("llama3", description="which scaling this is")
    factor: float = Field(gt=0, description="divisor of the low frequencies")
    low: float = Field(1.0, gt=0, description="wavelengths longer than original_context / low are divided")
    high: float = Field(4.0, gt=0, description="wavelengths shorter than original_context / high are kept")
    original_context: int = Field(gt=0, description="length of the training before the extension")


class YarnScaling(Config):
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


class LongRopeScaling(Config):
    """LongRoPE (arXiv 2402.13753): a searched divisor per frequency, one list for short texts and one for long."""

    kind: Literal["longrope"] = Field("longrope", description="which scaling this is")
    short_factors: tuple[float, ...] = Field(description="divisors while no position passes original_context")
    long_factors: tuple[float, ...] = Field(description="divisors for longer inputs")
    original_context: int = Field(gt=0, description="length of the training before the extension")
    context: int = Field(gt=0, description="the extended length")
    attention_factor: float | None = Field(
        None, gt=0, description="factor on cos and sin; null: sqrt(1 + ln(context/original) / ln(original))"
    )


Scaling = Annotated[LinearScaling | Llama3Scaling | YarnScaling | LongRopeScaling, Field(discriminator="kind")]


class RopeConfig(Config):
    """Rotary positions (Su et al., arXiv 2104.09864)."""

    base: float = Field(10_000.0, gt=1, description="θ: the longest wavelength is about 2π·θ positions")
    pairing: Literal["halves", "interleaved"] = Field(
        "halves", description="which channels are rotated together: i and i + r/2, or 2i and 2i + 1"
    )
    share: float = Field(1.0, gt=0, le=1, description="share of the head's channels that are rotated (the first ones)")
    scaling: Scaling | None = Field(None, description="stretching over longer texts; null for none")

    def rotated(self, head_width: int) -> int:
        """How many channels of a head are rotated."""
        return int(self.share * head_width)

    def describe(self) -> str:
        """Base, pairing, rotated share and scaling in a few words, for `ingot model show`."""
        words = [f"RoPE θ {self.base:.4g}".replace("e+0", "e").replace("e+", "e")]
        words += [f"{self.share:g} of the head"] if self.share < 1 else []
        words += ["interleaved"] if self.pairing == "interleaved" else []
        scaling = self.scaling
        if scaling is not None:
            stretch = (
                scaling.context / scaling.original_context if isinstance(scaling, LongRopeScaling) else scaling.factor
            )
            words.append(f"{scaling.kind} ×{stretch:g}")
        return " ".join(words)

    @model_validator(mode="after")
    def _lists_match(self) -> RopeConfig:
        scaling = self.scaling
        if isinstance(scaling, LongRopeScaling) and len(scaling.short_factors) != len(scaling.long_factors):
            raise ValueError(
                f"short_factors has {len(scaling.short_factors)} numbers, long_factors {len(scaling.long_factors)}"
            )
        return self
