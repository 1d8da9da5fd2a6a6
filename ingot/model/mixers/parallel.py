"""Softmax attention and Mamba-2 side by side on the same input (Falcon-H1, arXiv 2507.22448).

    y = attention_out · Attention(attention_in · x) + mamba_out · Mamba2(x)

Parameters: those of `attention` and of `mamba`. Shapes: B rows, T tokens, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ingot.model.context import Context
from ingot.model.mixers.attention import Attention
from ingot.model.mixers.cache import Cache, JointCache, Room
from ingot.model.mixers.config import ParallelConfig
from ingot.model.mixers.mamba2 import Mamba2
from ingot.model.mixers.mixer import Mixer, Site, mix


class Parallel(Mixer):
    """The sum of an attention and a state-space branch."""

    def __init__(self, config: ParallelConfig, site: Site) -> None:
        super().__init__()
        self.config = config
        self.attention = Attention(config.attention, site)
        self.mamba = Mamba2(config.mamba, site)

    def forward(self, x_BTD: Tensor, context: Context, cache: Cache | None = None) -> Tensor:
        config = self.config
        assert cache is None or isinstance(cache, JointCache)
        parts: dict[str, Cache] = {} if cache is None else dict(cache.parts)
        attended: Tensor = self.attention(x_BTD * config.attention_in, context, parts.get("attention"))
        recurred = mix(self.mamba, x_BTD, context, parts.get("mamba"))
        return config.attention_out * attended + config.mamba_out * recurred

    def make_cache(self, room: Room, dtype: torch.dtype, device: torch.device) -> JointCache:
        return JointCache(
            attention=self.attention.make_cache(room, dtype, device),
            mamba=self.mamba.make_cache(room, dtype, device),
        )
