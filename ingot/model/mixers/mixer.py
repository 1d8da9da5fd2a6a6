"""The interface of a token mixer: its options (`MixerConfig`), its module (`Mixer`), and where it is built (`Site`).

A mixer is one file of this folder with a config class and a module class. The config builds the module and answers every
question that the rest of the package has about the mixer before it is built: what `ingot model show` prints, FLOPs, the widths
that memory depends on, what parallel layouts must divide. A new mixer is its file and one entry in the list of config.py; one of
your own is a file anywhere, which a recipe names: `mixer: {kind: file.py:Name}`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from pydantic import Field
from torch import Tensor, nn

from ingot.model.context import Context
from ingot.model.linear import Linear
from ingot.model.matrices import Rows
from ingot.model.mixers.cache import Cache, CacheShape
from ingot.model.norm import NormConfig
from ingot.workspace.kinds import Part


@dataclass(frozen=True)
class Site:
    """The position of a part in the model: layer `layer` of `depth`, in a stream of `width` channels."""

    width: int
    layer: int
    depth: int
    norm: NormConfig


class MixerConfig(Part):
    """Base of the mixers' options."""

    kind: str = Field("", description="which mixer this is: a name, or file.py:Name")

    @abstractmethod
    def build(self, site: Site) -> Mixer:
        """The module."""

    @abstractmethod
    def describe(self) -> str:
        """The mixer and its switches in a few words, for `ingot model show`."""

    @abstractmethod
    def mixing_flops(self, length: int) -> float:
        """Forward FLOPs per token besides those of its matrix products, in a text of `length` tokens."""

    @property
    @abstractmethod
    def input_width(self) -> int:
        """Numbers per token that enter the mixing (queries, keys and values, or the like)."""

    @property
    @abstractmethod
    def output_width(self) -> int:
        """Numbers per token that leave the mixing, before the output projection."""

    @property
    def key_value_width(self) -> int:
        """Numbers per token that a query on another context-parallel rank needs; a recurrent mixer passes on a state: none."""
        return 0

    @property
    def reach(self) -> int | None:
        """Tokens of the past that a query can see, where that is limited: the cache grows no further. None: all."""
        return None

    @property
    def divided(self) -> Mapping[str, int]:
        """Options that tensor parallelism divides, by name; empty: the mixer is whole on every tensor-parallel rank."""
        return {}

    @property
    def clippable(self) -> bool:
        """Whether QK-clip can act: there are attention logits, and no norms of queries and keys bound them."""
        return False

    @property
    def needs_layer_before(self) -> bool:
        """Whether it reads a choice of the layer before it: both must be on one pipeline stage."""
        return False

    @property
    def untrained(self) -> str:
        """The part of the mixer that no loss reaches, and why, in words; empty: all of it trains."""
        return ""


class Mixer(nn.Module, ABC):
    """Maps the normed stream [B, T, D] to what is added to it. Built by its config: `config.build(site)`."""

    def prepare(self, context: Context) -> None:
        """Compute what equal layers share, before the first of them asks: their compiled code then finds it there."""

    capturable = True  # a step of decoding launches the same kernels whatever the data: it can be a CUDA graph
    rows_split = False  # its cache lies in pages alone: one sequence may be several rows of a pass that continues it
    whole_rows = False  # it must see all tokens of a row at once, also where they are divided over ranks

    @abstractmethod
    def forward(self, x_BTD: Tensor, context: Context, cache: Cache | None = None) -> Tensor:
        """The mixer's output. With a cache: reads the past from it and writes the new tokens into it."""

    @abstractmethod
    def make_cache(self, cache_shape: CacheShape, dtype: torch.dtype, device: torch.device) -> Cache:
        """An empty cache."""


class SoftmaxMixer(Mixer):
    """A mixer with attention logits, which it reports to the Record of a pass by its layer's number."""

    layer: int

    @abstractmethod
    def logit_factors(self, factor_H: Tensor) -> Sequence[tuple[Linear, Sequence[tuple[Rows, Tensor]]]]:
        """The factors for rows of the projections that make the logits of head h factor_H[h] times as large."""


def mix(mixer: Mixer, x_BTD: Tensor, context: Context, cache: Cache | None = None) -> Tensor:
    """The mixer's output for the pass's tokens; where tokens are divided over ranks, mixers that need whole rows get them."""
    if context.context_parallel is None or not mixer.whole_rows:
        out: Tensor = mixer(x_BTD, context, cache)
        return out
    return context.own(mixer(context.gather(x_BTD, 1), context.whole, cache))
