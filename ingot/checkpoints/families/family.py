"""The interface of a family: how a Hugging Face model type's config.json and tensors are translated.

Three functions make a family. `read` turns the keys of config.json into a ModelConfig; `write` does the reverse; `layout`
names every tensor and says which part of which parameter it is. Nothing else in Ingot knows of families.

A family needs no list of what it does not support: it can express a model exactly if reading what `write` gave returns the
same architecture (table.py checks it).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from ingot.checkpoints.families.keys import Keys
from ingot.model.config import ModelConfig

View = Callable[[Tensor], Tensor]


def whole(tensor: Tensor) -> Tensor:
    """The view of everything."""
    return tensor


def rows(start: int, end: int) -> View:
    """The view of some rows (the first axis)."""
    return lambda tensor: tensor[start:end]


@dataclass(frozen=True)
class ViewPair:
    """A part of a Hugging Face tensor and the part of our parameter that holds the same numbers.

    Both are views (slices, transposes, unflattened axes), so copying works in both directions; their shapes are equal.
    """

    parameter: str
    ours: View = whole
    theirs: View = whole


@dataclass(frozen=True)
class TensorMap:
    """The parts of a Hugging Face tensor. `shape` is needed only where it is not the shape of the first pair's view.

    A `duplicate` is a second copy of what another tensor holds: always written, optional when reading, and it must be equal.
    A `computed` tensor follows from the configuration: it has no pairs, is written, and is not read.
    """

    pairs: tuple[ViewPair, ...]
    shape: tuple[int, ...] | None = None
    duplicate: bool = False
    computed: Callable[[], Tensor] | None = None


Layout = dict[str, TensorMap]


def maps_to(
    parameter: str, ours: View = whole, theirs: View = whole, shape: tuple[int, ...] | None = None
) -> TensorMap:
    """A tensor that is one view of one parameter."""
    return TensorMap((ViewPair(parameter, ours, theirs),), shape)


@dataclass(frozen=True)
class Family:
    """A model type. The first of `types` is the one that is written; the others are spellings of the same thing.

    `ignored` are tensors (regular expressions) that hold nothing: buffers which follow from the configuration. `left_out` are
    tensors of parts that Ingot does not have (an image encoder); a note names them. `renames` are patterns and
    replacements that bring other spellings of tensor names to those of the layout.
    """

    types: tuple[str, ...]
    architecture: str
    read: Callable[[Keys], ModelConfig]
    write: Callable[[ModelConfig], Mapping[str, Any]]
    layout: Callable[[ModelConfig], Layout]
    ignored: tuple[str, ...] = field(default=(r".*\.rotary_emb\.inv_freq",))
    left_out: tuple[str, ...] = ()
    renames: tuple[tuple[str, str], ...] = ()

    def canonical(self, name: str) -> str:
        """The layout's name of a tensor."""
        for pattern, replacement in self.renames:
            name = re.sub(pattern, replacement, name)
        return name
