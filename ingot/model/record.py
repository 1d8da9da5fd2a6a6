"""Collects what a training pass reports besides its states: losses of parts, loads of routers, largest attention logits.

A training step passes a Record to `Transformer.hidden`; without one (evaluation, sampling) nothing is computed or kept, and
a model without such parts does nothing with it. Everything in it is a *sum* over tokens, not a mean: sums add up over passes
and ranks, and the trainer divides by the count of the whole step, as for every term of the loss (train/losses/terms.py), so
that the numbers do not depend on micro-batching. The exception is `max_logits`, which are maxima.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn


def _alone(tensor: Tensor) -> Tensor:
    return tensor


@dataclass(frozen=True)
class RouterLoad:
    """How one router spread its tokens, padding left out; no gradient."""

    choices_E: Tensor  # how often each expert was chosen, int64
    tokens: Tensor  # how many tokens chose, int64
    entropy: Tensor  # Σ over tokens of the entropy of their scores, in nats
    histogram_EH: Tensor | None = None  # each expert's scores in bins, where a balancer asks for it (balance.py)

    def tensors(self) -> tuple[Tensor, ...]:
        """All its sums."""
        rest = () if self.histogram_EH is None else (self.histogram_EH,)
        return self.choices_E, self.tokens, self.entropy, *rest

    def map(self, change: Callable[[Tensor], Tensor]) -> RouterLoad:
        """The same with every tensor changed."""
        return RouterLoad(*(change(tensor) for tensor in self.tensors()))

    def __add__(self, other: RouterLoad) -> RouterLoad:
        return RouterLoad(*(mine + theirs for mine, theirs in zip(self.tensors(), other.tensors(), strict=True)))


@dataclass
class Record:
    """Filled during one forward pass, or the sum over the passes of a step."""

    losses: dict[str, Tensor] = field(default_factory=dict)  # name in the log -> Σ of coefficient · loss
    loads: dict[int, RouterLoad] = field(default_factory=dict)  # by layer
    # by layer: the step's earlier passes, from the caller
    before: Mapping[int, RouterLoad] = field(default_factory=dict)
    sum_ranks: Callable[[Tensor], Tensor] = _alone  # adds a tensor over the ranks that have other tokens, in place

    want_logits: bool = False  # whether attention layers report their largest logits
    # by layer: of each head [H], scaled, before any softcap
    max_logits: dict[int, Tensor] = field(default_factory=dict)

    def add_loss(self, name: str, total: Tensor) -> None:
        """Add a part's summed loss under `name`."""
        self.losses[name] = self.losses[name] + total if name in self.losses else total

    def add_load(self, layer: int, load: RouterLoad) -> None:
        """Add what the router of `layer` did; a layer that is applied twice reports twice."""
        self.loads[layer] = self.loads[layer] + load if layer in self.loads else load

    def add_loads(self, other: Record) -> None:
        """Add the loads of another pass."""
        for layer, load in other.loads.items():
            self.add_load(layer, load)

    def add_max_logits(self, layer: int, maxima_H: Tensor) -> None:
        """Keep the largest logit that each head of `layer` has had."""
        before = self.max_logits.get(layer)
        self.max_logits[layer] = maxima_H.detach() if before is None else torch.maximum(before, maxima_H.detach())

    def add_all_max_logits(self, other: Record) -> None:
        """Keep those of another pass too."""
        for layer, maxima_H in other.max_logits.items():
            self.add_max_logits(layer, maxima_H)

    def max_over_ranks(self, max_ranks: Callable[[Tensor], Tensor]) -> None:
        """Make the largest logits those of all ranks with other tokens; `max_ranks` takes a tensor's maximum over them."""
        if self.max_logits:
            layers = sorted(self.max_logits)
            maxima = [self.max_logits[layer] for layer in layers]
            largest = max_ranks(torch.cat(maxima)).split([len(each) for each in maxima])
            self.max_logits = dict(zip(layers, largest, strict=True))

    def sum_over_ranks(self) -> None:
        """Make the loads those of all ranks: one sum for all that have the same dtype."""
        by_dtype: defaultdict[torch.dtype, list[Tensor]] = defaultdict(list)
        for _, load in sorted(self.loads.items()):
            for tensor in load.tensors():
                by_dtype[tensor.dtype].append(tensor)
        for tensors in by_dtype.values():
            total = self.sum_ranks(torch.cat([tensor.reshape(-1) for tensor in tensors]))
            parts = total.split([tensor.numel() for tensor in tensors])
            torch._foreach_copy_(tensors, [part.view_as(tensor) for part, tensor in zip(parts, tensors, strict=True)])


class Reporter:
    """Base of the parts that add losses to the Record, so that a trainer can say beforehand which."""

    reported_losses: Mapping[str, float] = {}  # name in the log -> coefficient


def reported_losses(model: nn.Module) -> dict[str, set[float]]:
    """The losses that a model's parts add, each with its coefficients (they may differ between layers)."""
    found: dict[str, set[float]] = {}
    for module in model.modules():
        if isinstance(module, Reporter):
            for name, coefficient in module.reported_losses.items():
                found.setdefault(name, set()).add(coefficient)
    return found
