"""Softmax attention in parallel with Mamba-2 on the same input (Falcon-H1, arXiv 2507.22448).

    y = attention_out · Attention(attention_in · x) + mamba_out · Mamba2(x)

Parameters: those of `attention` and of `mamba`. Shapes: B rows, T tokens, D width.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from ingot.model.context import Context
from ingot.model.mixers.attention import Attention, AttentionConfig
from ingot.model.mixers.cache import Cache, CacheShape, JointCache
from ingot.model.mixers.mamba2 import Mamba2, Mamba2Config
from ingot.model.mixers.mixer import Mixer, MixerConfig, Site, mix


class ParallelConfig(MixerConfig):
    """Softmax attention in parallel with Mamba-2 on the same normed input (Falcon-H1, arXiv 2507.22448).

    y = attention_out · Attention(attention_in · x) + mamba_out · Mamba2(x)
    """

    kind: Literal["parallel"] = Field("parallel", description="which mixer this is")
    attention: AttentionConfig = Field(description="the softmax branch")
    mamba: Mamba2Config = Field(description="the state-space branch")
    attention_in: float = Field(1.0, description="factor on the attention branch's input")
    attention_out: float = Field(1.0, description="factor on the attention branch's output")
    mamba_out: float = Field(1.0, description="factor on the state-space branch's output")

    def build(self, site: Site) -> Parallel:
        return Parallel(self, site)

    def describe(self) -> str:
        return f"{self.attention.describe()} ∥ {self.mamba.describe()}"

    def mixing_flops(self, length: int) -> float:
        return self.attention.mixing_flops(length) + self.mamba.mixing_flops(length)

    @property
    def input_width(self) -> int:
        return self.attention.input_width + self.mamba.input_width

    @property
    def output_width(self) -> int:
        return self.attention.output_width + self.mamba.output_width

    @property
    def key_value_width(self) -> int:
        return self.attention.key_value_width

    @property
    def reach(self) -> int | None:
        return self.attention.reach

    @property
    def divided(self) -> Mapping[str, int]:
        return self.attention.divided

    @property
    def clippable(self) -> bool:
        return self.attention.clippable


class Parallel(Mixer):
    """The sum of an attention and a state-space branch."""

    def __init__(self, config: ParallelConfig, site: Site) -> None:
        super().__init__()
        self.config = config
        self.attention = Attention(config.attention, site)
        self.mamba = Mamba2(config.mamba, site)

    def prepare(self, context: Context) -> None:
        self.attention.prepare(context)
        self.mamba.prepare(context)

    def forward(self, x_BTD: Tensor, context: Context, cache: Cache | None = None) -> Tensor:
        config = self.config
        assert cache is None or isinstance(cache, JointCache)
        parts: dict[str, Cache] = {} if cache is None else dict(cache.parts)
        attended: Tensor = self.attention(x_BTD * config.attention_in, context, parts.get("attention"))
        recurred = mix(self.mamba, x_BTD, context, parts.get("mamba"))
        return config.attention_out * attended + config.mamba_out * recurred

    def make_cache(self, cache_shape: CacheShape, dtype: torch.dtype, device: torch.device) -> JointCache:
        return JointCache(
            attention=self.attention.make_cache(cache_shape, dtype, device),
            mamba=self.mamba.make_cache(cache_shape, dtype, device),
        )
