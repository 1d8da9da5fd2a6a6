"""The interface of a feed-forward's options: what they tell the rest of the package before the module is built.

A feed-forward is one file of this folder with a config class and a module class, as a mixer is (mixers/mixer.py), and one
entry in the list of config.py; or a file of your own, which a recipe names: `feed_forward: {kind: file.py:Name}`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import Field
from torch import nn

from ingot.model.mixers.mixer import Site
from ingot.workspace.kinds import Part


@dataclass(frozen=True)
class RoutedExperts:
    """The numbers of a mixture: `active` of `experts` per token, and the width of what reaches them (None: the stream's)."""

    experts: int
    active: int
    expert_width: int
    shared_width: int
    latent: int | None


class ChannelConfig(Part):
    """Base of the feed-forwards' options.

    The module that it builds maps the normed stream [B, T, D] and the pass's Context to what is added to the stream.
    """

    kind: str = Field("", description="which feed-forward this is: a name, or file.py:Name")

    @abstractmethod
    def build(self, site: Site) -> nn.Module:
        """The module."""

    @abstractmethod
    def describe(self) -> str:
        """The feed-forward in a few words, for `ingot model show`."""

    @property
    @abstractmethod
    def inner_width(self) -> int:
        """Inner channels that a token passes."""

    @property
    @abstractmethod
    def has_gate(self) -> bool:
        """Whether those channels have a gate, which training also keeps for the backward pass."""

    @property
    def divided(self) -> Mapping[str, int]:
        """Options that tensor parallelism divides, by name; empty: the part is whole on every tensor-parallel rank."""
        return {}

    @property
    def routed(self) -> RoutedExperts | None:
        """The mixture of experts in it; None: every token passes all of its parameters.

        Parameters of routed experts are stacked [experts, …] in the module `experts`.
        """
        return None

    def group(self, parameter: str) -> str:
        """Under which name `ingot model show` counts a parameter of the module, such as `router.weight`."""
        return "feed-forward"
