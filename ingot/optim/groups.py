"""Decides which parameters decay and which optimizer updates them: by the recipe's patterns, else by name and shape.

Matrices decay; embeddings, gains, biases, sinks and all other vectors do not: decaying an embedding shrinks rare tokens that
get no gradient, and decaying a gain works against the norm (OLMo 2, arXiv 2501.00656, section 3). Muon takes the matrices of the
blocks; embeddings, head, vectors and the taps of convolutions, which are one small filter per channel, are left to AdamW.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from torch import nn

from ingot.optim.config import GroupConfig
from ingot.workspace.errors import RecipeError

HEAD = "output.weight"
NAMED = 3  # parameters that an error suggests


def decays(name: str, parameter: nn.Parameter) -> bool:
    """Whether weight decay applies to this parameter by default."""
    return parameter.dim() >= 2 and "embedding" not in name and not name.endswith("bias")  # experts' biases are stacked


def is_hidden_matrix(name: str, parameter: nn.Parameter) -> bool:
    """Whether it is a matrix, or a stack of them, between embedding and head."""
    flat = parameter.dim() < 2 or min(parameter.shape[-2:]) == 1
    return decays(name, parameter) and not flat and name != HEAD and ".convolution." not in name


def match_groups(
    named: Sequence[tuple[str, nn.Parameter]], groups: Iterable[GroupConfig], elsewhere: Iterable[str] = ()
) -> dict[str, GroupConfig]:
    """The first group that matches each name; names that none matches are missing. A group without a name is an error.

    Names `elsewhere` are those of parameters that other ranks hold.
    """
    found: dict[str, GroupConfig] = {}
    names = [name for name, _ in named]
    for number, group in enumerate(groups):
        matching = [name for name in names if fnmatchcase(name, group.match)]
        if not matching and not any(fnmatchcase(name, group.match) for name in elsewhere):
            raise RecipeError(
                f"{group.match} matches no parameter",
                place=f"optimizer.groups[{number}].match",
                fix=f"the model's parameters are named like {', '.join(_nearest(group.match, names))}",
            )
        for name in matching:
            found.setdefault(name, group)
    return found


def _nearest(pattern: str, names: list[str]) -> list[str]:
    """The names most like the pattern; numbers of layers make no difference, so each kind is named once."""
    kinds = {".".join("*" if part.isdigit() else part for part in name.split(".")): name for name in reversed(names)}
    close = difflib.get_close_matches(pattern, kinds, n=NAMED, cutoff=0.0)
    return [kinds[kind] for kind in close]
