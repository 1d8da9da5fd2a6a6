"""Training a part of a model: parameters whose names match no pattern stay as they are.

The dense warm-up of sparse attention (DeepSeek-V3.2) trains `*.indexer.*` alone; a new head or new experts are other uses.
Patterns are those of the shell: `*` stands for anything, dots included.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from torch import nn

from ingot.workspace.errors import RecipeError


def freeze_others(model: nn.Module, patterns: Sequence[str]) -> None:
    """Let only the parameters train whose names match a pattern; without patterns all do. One that matches none is an error."""
    unused = set(patterns)
    for name, parameter in model.named_parameters():
        matching = [pattern for pattern in patterns if fnmatchcase(name, pattern)]
        unused.difference_update(matching)
        parameter.requires_grad_(bool(matching) or not patterns)
    if unused:
        names = [name for name, _ in model.named_parameters()]
        raise RecipeError(
            f"train_only: {', '.join(sorted(unused))} matches no parameter",
            fix=f"the model's parameters are named like {', '.join(names[:3])} … {names[-1]}",
        )
