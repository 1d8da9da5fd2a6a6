"""What a Hugging Face model type is to Ingot: a translation of its config.json, and a place for each of its tensors.

Three functions make a family. `read` turns the keys of config.json into a ModelConfig; `write` does the reverse; `layout`
names every tensor and says which part of which parameter it is. Nothing else in Ingot knows of families.

`write` is only asked whether it *can*: a model is expressible in a family exactly if reading what was written gives the same
architecture again (table.py checks it), so a family needs no list of what it does not support.
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
class Piece:
    """A part of a Hugging Face tensor and the part of our parameter that holds the same numbers.

    Both are views (slices, transposes, unflattened axes), so copying works in both directions; their shapes are equal.
    """

    parameter: str
    ours: View = whole
    theirs: View = whole


@dataclass(frozen=True)
class Place:
    """Where a Hugging Face tensor lies. `shape` is needed only where it is not the shape of the one piece's view.

    A `duplicate` is a second copy of what another tensor holds: always written, optional when reading, and it must be equal.
    A `computed` tensor follows from the configuration: it has no pieces, is written, and is not looked at when reading.
    """

    pieces: tuple[Piece, ...]
    shape: tuple[int, ...] | None = None
    duplicate: bool = False
    computed: Callable[[], Tensor] | None = None


Layout = dict[str, Place]


def place(parameter: str, ours: View = whole, theirs: View = whole, shape: tuple[int, ...] | None = None) -> Place:
    """A tensor that is one piece."""
    return Place((Piece(parameter, ours, theirs),), shape)


@dataclass(frozen=True)
class Family:
    """A model type. The first of `types` is the one that is written; the others are spellings of the same thing.

    `ignored` are tensors (regular expressions) that hold nothing: buffers which follow from the configuration. `left_out` are
    tensors of parts that Ingot does not have (an image encoder): whoever reads the model is told. `renames` are patterns and
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
