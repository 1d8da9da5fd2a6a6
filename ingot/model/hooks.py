"""Whether somebody listens to a module: code that takes the work of several modules at once would bypass him."""

from __future__ import annotations

from torch import nn


def is_hooked(module: nn.Module) -> bool:
    """Whether somebody listens to the module, or changes what it does."""
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    return any(hooks)
