"""How far an update moves the weights, by kind of parameter: ‖Δw‖ / ‖w‖.

About 1e-3 is usual at the peak learning rate; far less means that a part does not learn, far more that it is thrown about.
Instead of a second copy of the weights, a fixed sample of at most 1024 entries per parameter is compared: short runs of
neighbours, which share a line of the cache. The stride between them has no divisor in common with the runs in a row, so that
all columns get their share. Squares count as many times as the parameter has entries per sampled one, so that both norms are
estimated without bias. Everything stays on the device.

Legend: S sampled entries of all parameters, K kinds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from ingot.train.parallel.layout import AXES, Layout

SAMPLE = 1024
RUN = 16  # neighbours in a run
KINDS = (
    "router",
    "experts",
    "embedding",
    "head",
    "mixer",
    "feed_forward",
)  # in this order: experts are in a feed_forward


def kind_of(name: str) -> str:
    """The kind of a parameter by its name: norms' gains apart, then what it is a part of."""
    parts = name.split(".")
    if parts[-1] == "gain":
        return "norm"
    return next((kind for kind in KINDS if kind in parts), "other")


class UpdateRatios:
    """Measures the update that happens inside `around`."""

    def __init__(self, trained: Sequence[tuple[str, nn.Parameter]], layout: Layout | None) -> None:
        self.layout = layout
        ordered = sorted(trained, key=lambda pair: kind_of(pair[0]))  # entries of a kind side by side
        self.parameters = [parameter for _, parameter in ordered]
        kinds = {kind_of(name) for name, _ in trained}
        kinds = kinds if layout is None else set(layout.union(kinds, "pipeline"))  # also those of other stages alone
        self.sizes = dict.fromkeys(sorted(kinds), 0)  # by kind: sampled entries
        weights = []
        for (name, parameter), sample in zip(ordered, self._views(), strict=True):
            self.sizes[kind_of(name)] += len(sample)
            weights.append(torch.full((len(sample),), _local(parameter).numel() / max(len(sample), 1)))
        self.weight_S = torch.cat(weights).to(_local(self.parameters[0]).device)

    @contextmanager
    def around(self, measured: dict[str, Tensor]) -> Iterator[None]:
        """Inside, the weights are updated; then `measured` gets the ratio of every kind."""
        before_S = self._sample()
        yield
        pair = (self._sample() - before_S, before_S)
        squares = torch.stack([self._sums(self.weight_S * values_S.square()) for values_S in pair])
        if self.layout is not None:
            self.layout.sum_over(squares, *AXES)  # shards of a matrix, and copies: these count alike above and below
        moved_K, size_K = squares
        ratios_K = (moved_K / size_K.clamp(min=torch.finfo(torch.float32).tiny)).sqrt()
        measured.update({f"update_ratio/{kind}": ratio for kind, ratio in zip(self.sizes, ratios_K, strict=True)})

    def _sums(self, squares_S: Tensor) -> Tensor:
        """Their sums by kind [K]."""
        return torch.stack([part.sum() for part in squares_S.split(list(self.sizes.values()))])

    def _sample(self) -> Tensor:
        return torch.cat(self._views()).float()

    def _views(self) -> list[Tensor]:
        """The sampled entries of every parameter."""
        return [_sampled(_local(parameter).detach()) for parameter in self.parameters]


def _sampled(tensor: Tensor) -> Tensor:
    flat = tensor.flatten()
    if len(flat) <= SAMPLE:
        return flat
    runs = flat[: len(flat) // RUN * RUN].view(-1, RUN)
    stride = -(-len(runs) // (SAMPLE // RUN))
    while math.gcd(stride, max(tensor.shape[-1] // RUN, 1)) > 1:
        stride += 1
    return runs[::stride].reshape(-1)


def _local(parameter: Tensor) -> Tensor:
    return parameter.to_local() if isinstance(parameter, DTensor) else parameter
