"""The interface of a token mixer, and where it stands in the model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ingot.model.config import NormConfig
from ingot.model.context import Context
from ingot.model.mixers.cache import Cache, Room


@dataclass(frozen=True)
class Site:
    """Where a part is built: layer `layer` of `depth`, in a stream of `width` channels."""

    width: int
    layer: int
    depth: int
    norm: NormConfig


class Mixer(nn.Module, ABC):
    """Maps the normed stream [B, T, D] to what is added to it. Built as `Kind(config, site)`."""

    def prepare(self, context: Context) -> None:
        """Compute what equal layers share, before the first of them asks: their compiled code then finds it there."""

    capturable = True  # a step of decoding launches the same kernels whatever the data: it can be a CUDA graph
    rows_split = False  # what it keeps lies in pages alone: one text may be several rows of a pass that continues it
    whole_rows = False  # it must see all tokens of a row at once, also where they are divided over ranks

    @abstractmethod
    def forward(self, x_BTD: Tensor, context: Context, cache: Cache | None = None) -> Tensor:
        """The mixer's output. With a cache: reads the past from it and writes the new tokens into it."""

    @abstractmethod
    def make_cache(self, room: Room, dtype: torch.dtype, device: torch.device) -> Cache:
        """An empty cache."""


def mix(mixer: Mixer, x_BTD: Tensor, context: Context, cache: Cache | None = None) -> Tensor:
    """The mixer's output for the pass's tokens; where tokens are divided over ranks, some mixers get whole rows for it."""
    if context.across is None or not mixer.whole_rows:
        out: Tensor = mixer(x_BTD, context, cache)
        return out
    return context.own(mixer(context.gather(x_BTD, 1), context.whole, cache))
