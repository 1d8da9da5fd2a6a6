"""Merging one tensor of several models, in float32.

    linear                Σ w_i T_i / Σ w_i                                     model soups, arXiv 2203.05482
    slerp                 [sin((1−t)θ) a + sin(tθ) b] / sin θ,  cos θ = a·b / |a||b|;  (1−t) a + t b if |cos θ| > 0.9995
    task arithmetic       base + λ Σ w_i (T_i − base)                           arXiv 2212.04089
    TIES                  keeps the largest share of each difference; then, entry by entry, only those with the sign of the
                          sum, divided by their weights                         arXiv 2306.01708
    DARE                  keeps a random share of each difference and rescales it; then as task arithmetic or as TIES
                          arXiv 2311.03099

What is sparse, signed and divided by what follows mergekit 0.1.5, with which the results are equal; the paper's 1/density is an
option. A method reads one model's tensor at a time, so its memory does not depend on how many models there are; a function of
the user's own is given the tensor of all models together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ingot.checkpoints.merge_config import METHOD, MergeConfig
from ingot.workspace.errors import CheckFailed

PARALLEL = 0.9995  # a cosine beyond which the arc is taken for a line
TINY_NORM = 1e-8
TINY_SUM = 1e-7

Read = Callable[[int], Tensor]  # model -> its tensor in float32
Generators = Callable[[int], torch.Generator]  # model -> where its random numbers come from


def merge_tensor(
    config: MergeConfig, read: Read, weights: Sequence[float], base: Tensor | None, generators: Generators
) -> Tensor:
    """The merged tensor; `base` is that of the model from which differences are taken."""
    if config.is_own:
        return _by_own(config.method, [read(model) for model in range(len(weights))], weights, base)
    if config.method == "linear":
        return linear(read, weights, normalised=config.normalised)
    if config.method == "slerp":
        return slerp(config.t, read(0), read(1))
    assert base is not None
    return base + combine(config, read, weights, base, generators) * config.scale


def _by_own(method: str, tensors: list[Tensor], weights: Sequence[float], base: Tensor | None) -> Tensor:
    """What a function of the user's makes of the tensors of all models, which are in memory together."""
    shape = tensors[0].shape
    merged = METHOD.find(method)(tensors, tuple(weights), base)
    if not isinstance(merged, Tensor) or merged.shape != shape:
        given = f"shape {tuple(merged.shape)}" if isinstance(merged, Tensor) else type(merged).__name__
        problem = f"it made {given} of tensors of shape {tuple(shape)}"
        raise CheckFailed(problem, place=method, fix="return one tensor of the shape of each that it is given")
    return merged.float()


def linear(read: Read, weights: Sequence[float], *, normalised: bool) -> Tensor:
    """Σ w_i T_i, divided by Σ w_i if `normalised`."""
    total = read(0) * weights[0]
    for model in range(1, len(weights)):
        total.add_(read(model), alpha=weights[model])
    return total / sum(weights) if normalised else total


def slerp(t: float, first: Tensor, second: Tensor) -> Tensor:
    """The point at `t` of the arc from one tensor to the other, whole tensors being vectors."""
    norms = [float(each.norm()) for each in (first, second)]
    units = [each / (norm if norm > TINY_NORM else 1.0) for each, norm in zip((first, second), norms, strict=True)]
    cosine = torch.clamp((units[0] * units[1]).sum(), -1.0, 1.0)
    if float(cosine.abs()) > PARALLEL:
        return (1 - t) * first + t * second
    angle = torch.arccos(cosine)
    return (torch.sin((1 - t) * angle) * first + torch.sin(t * angle) * second) / torch.sin(angle)


def combine(config: MergeConfig, read: Read, weights: Sequence[float], base: Tensor, generators: Generators) -> Tensor:
    """The difference from the base that all models together make."""

    def difference(model: int) -> Tensor:
        delta = read(model) - base
        if config.method == "ties":
            delta = keep_largest(delta, config.density)
        elif config.method in ("dare_linear", "dare_ties"):
            delta = keep_random(delta, config.density, generators(model), by_norm=config.rescale == "norm")
        return delta * weights[model]

    total = torch.zeros_like(base)
    for model in range(len(weights)):
        total += difference(model)
    if config.method not in ("ties", "dare_ties"):
        divisor = sum(weights) if abs(sum(weights)) >= TINY_NORM else 1.0
        return total / divisor if config.normalised else total
    elected = torch.where(total >= 0, 1.0, -1.0)
    agreeing, counted = torch.zeros_like(base), torch.zeros_like(base)
    for model, weight in enumerate(weights):  # once more: keeping all differences would take the memory of all models
        delta = difference(model)
        agrees = delta.sign() == elected
        agreeing += delta * agrees
        counted += agrees * weight
    return agreeing / counted.masked_fill(counted == 0, 1.0) if config.normalised else agreeing


def keep_largest(delta: Tensor, density: float) -> Tensor:
    """The largest entries by size; the others are zero. At least one is kept."""
    if density >= 1 or not delta.numel():
        return delta
    count = max(1, int(density * delta.numel()))
    mask = torch.zeros(delta.numel(), dtype=torch.bool)
    mask[torch.argsort(delta.abs().reshape(-1), descending=True)[:count]] = True
    return delta * mask.view_as(delta)


def keep_random(delta: Tensor, density: float, generator: torch.Generator, *, by_norm: bool) -> Tensor:
    """Every entry with probability `density`; what is kept is scaled to the same L1 norm, or by 1/density."""
    if density >= 1:
        return delta
    kept = delta * torch.bernoulli(torch.full_like(delta, density), generator=generator)
    if not by_norm:
        return kept / density
    before, after = delta.abs().sum(), kept.abs().sum()
    return kept if before < TINY_SUM or after < TINY_SUM else kept * (before / after)
