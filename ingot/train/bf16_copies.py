"""bf16 copies of the large weights, made once a step and multiplied with instead (float16 where products are in float16).

Weights are float32; products are not. Autocast rounds a weight wherever it is used, compiled code even once more in the backward
pass, and the gradient, which comes in 16 bits, is widened before it is added: 6 + 6 + 6 + 12 bytes for every weight and pass.
Here every weight W of a linear layer, of a stack of experts and of the head gets a copy

    W₁₆ = round(W)        at the beginning of a step: 6 bytes
    G   ← G + G₁₆         as soon as the backward pass has made the copy's gradient, which is then dropped: 10 bytes a pass

The layers read the copies (`in_use`, model/linear.py) while the passes of a step run, and at no other time: before
and after, the model has float32 weights with float32 gradients. The numbers are those of autocast, bit for bit. Weights that
pass through a rounding of their own (quantisation-aware training) or are held in fewer bits (model/frozen.py) have no copy;
neither have sharded ones, which FSDP rounds before it gathers them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import cast

import torch
from torch import Tensor, nn

from ingot.model.feed_forward.experts import Experts
from ingot.model.linear import Linear
from ingot.model.lora import LoraLinear
from ingot.model.transformer import Transformer


class Bf16Copies:
    """The copies of a model's large weights in `dtype`."""

    def __init__(self, model: Transformer, dtype: torch.dtype, *, head: bool = True) -> None:
        modules = [module for module in model.modules() if module is not model.head_part]
        found = [(module, name) for module in modules for name in _matrices(module)]
        self.attributes = [(module, f"{name}_copy") for module, name in found]
        self.weights = [module.get_parameter(name) for module, name in found]
        if head:
            self.weights.append(cast("nn.Parameter", model.head_weight_VD))
        self.copies = [torch.empty_like(weight, dtype=dtype, requires_grad=False) for weight in self.weights]
        self.head = self.copies[-1] if head else None  # for the fused loss, which makes the head's gradient in float32
        for weight, copy in zip(self.weights, self.copies, strict=True):
            if weight.requires_grad and copy is not self.head:
                copy.requires_grad_()
                copy.register_post_accumulate_grad_hook(_hand_over(weight))

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """A context in which layers multiply with copies, made from the weights on entry; gradients go to the weights."""
        with torch.no_grad():
            torch._foreach_copy_(self.copies, [weight.detach() for weight in self.weights])
        for (module, name), copy in zip(self.attributes, self.copies, strict=False):
            setattr(module, name, copy)
        try:
            yield
        finally:
            for (module, name), copy in zip(self.attributes, self.copies, strict=False):
                delattr(module, name)
                copy.grad = None  # left by a pass that failed: the next step must not find it


def _matrices(module: nn.Module) -> tuple[str, ...]:
    """The names of the parameters of one module that get a copy."""
    if not isinstance(module, Linear | Experts) or module.rounding is not None:
        return ()
    if isinstance(module, LoraLinear) and module.frozen is not None:  # has no weight in float32
        return ()
    return ("weight",) if isinstance(module, Linear) else (module.first, "down")


def _hand_over(weight: nn.Parameter) -> Callable[[Tensor], None]:
    """A hook that adds a copy's gradient to its weight's."""

    def hand_over(copy: Tensor) -> None:
        assert copy.grad is not None
        add_gradient(weight, copy.grad)
        copy.grad = None

    return hand_over


def add_gradient(weight: nn.Parameter, part: Tensor) -> None:
    """Add a gradient in 16 bits to the weight's own, which is in float32."""
    weight.grad = part.to(weight.dtype) if weight.grad is None else weight.grad.add_(part)
