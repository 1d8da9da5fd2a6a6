"""Freezes parameters by name: one trains if it matches a pattern, and no pattern that begins with `!`.

The dense warm-up of sparse attention (DeepSeek-V3.2) trains `*.indexer.*` alone; `!*.indexer.*` trains all but the indexer.
Patterns are those of the shell: `*` stands for anything, dots included. The selection bias of a frozen router rests with it;
beside adapters (LoRA), which freeze the rest by themselves, it moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from torch import nn

from ingot.model.feed_forward.mixture import MixtureOfExperts
from ingot.workspace.errors import RecipeError


def freeze_others(model: nn.Module, patterns: Sequence[str]) -> None:
    """Freeze what the patterns do not let train; without patterns all trains. A pattern that matches nothing is an error."""
    unused = set(patterns)
    wanted = [pattern for pattern in patterns if not pattern.startswith("!")]
    for name, parameter in model.named_parameters():
        matching = {pattern for pattern in patterns if fnmatchcase(name, pattern.removeprefix("!"))}
        unused -= matching
        frozen = any(pattern.startswith("!") for pattern in matching)
        parameter.requires_grad_(not frozen and (not wanted or bool(matching)))
    for module in model.modules():
        if isinstance(module, MixtureOfExperts):
            module.bias_moves = module.router.weight.requires_grad
    if unused:
        names = [name for name, _ in model.named_parameters()]
        raise RecipeError(
            f"train_only: {', '.join(sorted(unused))} matches no parameter",
            fix=f"the model's parameters are named like {', '.join(names[:3])} … {names[-1]}",
        )
