"""Quantisation-aware training: the forward pass sees weights rounded to integers, the gradient passes straight through.

    q = clamp(round(w / s), −(2^(b−1) − 1), 2^(b−1) − 1),   s = max|w| / (2^(b−1) − 1) over a group of inputs,   ŵ = s·q

Symmetric, one scale per group of `group` consecutive inputs of an output row (32 in Kimi K2 Thinking's INT4 experts), so
that ŵ is exactly what an integer kernel would multiply with. The rounding has derivative one (straight-through estimator,
Bengio et al., arXiv 1308.3432): w keeps learning below the grid's resolution. What is stored stays the unrounded w.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from ingot.model.config import QuantisationConfig
from ingot.model.feed_forward.experts import Experts
from ingot.model.linear import Linear
from ingot.workspace.errors import RecipeError


def quantise(weight: Tensor, bits: int, group: int | None) -> tuple[Tensor, Tensor]:
    """Integers [..., groups, group] and their scales [..., groups, 1] for a weight whose last axis is the input."""
    largest = 2 ** (bits - 1) - 1
    grouped = weight.unflatten(-1, (-1, group or weight.shape[-1])).float()
    scales = grouped.abs().amax(dim=-1, keepdim=True) / largest
    integers = torch.round(grouped / scales.clamp_min(torch.finfo(torch.float32).tiny)).clamp(-largest, largest)
    return integers, scales


class _StraightThrough(torch.autograd.Function):
    """Rounds in the forward pass, is the identity in the backward pass."""

    @staticmethod
    def forward(ctx: object, weight: Tensor, bits: int, group: int | None) -> Tensor:
        integers, scales = quantise(weight, bits, group)
        return (integers * scales).flatten(-2).to(weight.dtype)

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> tuple[Tensor, None, None]:
        return gradient, None, None


def rounded(weight: Tensor, bits: int, group: int | None) -> Tensor:
    """ŵ, with the gradient of w."""
    return _StraightThrough.apply(weight, bits, group)  # type: ignore[no-untyped-call]


def quantise_weights(blocks: nn.Module, config: QuantisationConfig) -> None:
    """Make the layers of `blocks` round their weights: the routed experts, or all linear layers and experts."""
    rounding = partial(rounded, bits=config.bits, group=config.group)
    for name, module in blocks.named_modules():
        chosen = isinstance(module, Experts) or (config.parts == "linear" and isinstance(module, Linear))
        if not chosen:
            continue
        for weight_name, weight in module.named_parameters(recurse=False):
            if not weight_name.endswith("bias") and config.group and weight.shape[-1] % config.group:
                raise RecipeError(
                    f"{name}.{weight_name} has {weight.shape[-1]} inputs, no multiple of quantisation.group {config.group}",
                    fix="choose a group that divides the widths, or null for one scale per row",
                )
        module.rounding = rounding
