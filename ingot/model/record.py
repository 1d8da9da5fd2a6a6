"""What a training pass reports besides its states: losses of the parts, and how the routers spread the tokens.

A training step passes a Record to `Transformer.hidden`; without one (evaluation, sampling) nothing is computed or kept, and
a model without such parts does nothing with it. Everything in it is a *sum* over tokens, not a mean: sums add up over passes
and ranks, and the trainer divides by the count of the whole step, as it does for every term of the loss (train/terms.py), so
that the numbers do not depend on micro-batching.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor, distributed, nn


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

    def __add__(self, other: RouterLoad) -> RouterLoad:
        return RouterLoad(*(mine + theirs for mine, theirs in zip(self.tensors(), other.tensors(), strict=True)))


@dataclass
class Record:
    """Filled during one forward pass, or the sum over the passes of a step."""

    losses: dict[str, Tensor] = field(default_factory=dict)  # name in the log -> Σ of coefficient · loss
    loads: dict[int, RouterLoad] = field(default_factory=dict)  # by layer
    before: Mapping[int, RouterLoad] = field(
        default_factory=dict
    )  # by layer: the step's earlier passes, from the caller

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

    def sum_over_ranks(self) -> None:
        """Make the loads those of all data ranks; nothing to do in a single process."""
        if distributed.is_available() and distributed.is_initialized():
            for _, load in sorted(self.loads.items()):
                for tensor in load.tensors():
                    distributed.all_reduce(tensor)


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
