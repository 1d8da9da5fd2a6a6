"""Measures how far an update moves the weights, by kind of parameter: ‖Δw‖ / ‖w‖.

About 1e-3 is usual at the peak learning rate; far less means that a part does not learn, far more that it is thrown about.
Instead of a second copy of the weights, a fixed sample of at most 1024 entries per parameter is compared: short runs of
neighbours, which share a line of the cache. The stride between them has no divisor in common with the runs in a row, so that
all columns get their share. Squares count as many times as the parameter has entries per sampled one, so that both norms are
estimated without bias. Everything stays on the device.

Legend: S sampled entries of all parameters, K kinds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from ingot.train.hooks import Hook, OptimizerStep
from ingot.train.parallel.layout import AXES, Layout

SAMPLE = 1024
RUN = 16  # neighbours in a run
KINDS = (
    "router",
    "experts",
    "embedding",
    "mixer",
    "feed_forward",
)  # in this order: experts are in a feed_forward


def kind_of(name: str) -> str:
    """The kind of a parameter by its name: norms' gains and the untied head apart, then what it is a part of."""
    parts = name.split(".")
    if parts[-1] == "gain":
        return "norm"
    if parts[0] == "output":
        return "head"
    return next((kind for kind in KINDS if kind in parts), "other")


class UpdateRatios(Hook):
    """Measures the updates of every `every`-th step."""

    def __init__(self, trained: Sequence[tuple[str, nn.Parameter]], layout: Layout | None, every: int = 1) -> None:
        self.layout, self.every = layout, every
        self._before_S: Tensor | None = None
        ordered = sorted(trained, key=lambda pair: kind_of(pair[0]))  # entries of a kind side by side
        self.parameters = [parameter for _, parameter in ordered]
        kinds = {kind_of(name) for name, _ in trained}
        kinds = kinds if layout is None else set(layout.union(kinds, "pipeline"))  # also those of other stages alone
        self.sizes = dict.fromkeys(sorted(kinds), 0)  # by kind: sampled entries
        roots = []
        for name, parameter in ordered:
            entries, (_, taken) = _local(parameter).numel(), _steps(_local(parameter))
            self.sizes[kind_of(name)] += taken
            roots.append(torch.full((taken,), math.sqrt(entries / max(taken, 1))))
        self.root_S = torch.cat(roots).to(_local(self.parameters[0]).device)  # of how many entries each one stands for
        self._views: list[Tensor] = []  # of the sampled entries

    def before_update(self, step: OptimizerStep) -> None:
        self._before_S = self._sample() if step.number % self.every == 0 else None

    def after_update(self, step: OptimizerStep) -> None:
        """Log the ratio of every kind."""
        if self._before_S is None:
            return
        pair = (self._sample() - self._before_S, self._before_S)
        parts = [part for values_S in pair for part in (self.root_S * values_S).split(list(self.sizes.values()))]
        squares = torch.stack(torch._foreach_norm(parts)).square()
        if self.layout is not None:
            self.layout.sum_over(squares, *AXES)  # shards of a matrix, and copies: these count alike above and below
        moved_K, size_K = squares.view(2, -1)
        ratios_K = (moved_K / size_K.clamp(min=torch.finfo(torch.float32).tiny)).sqrt()
        step.metrics |= {f"update_ratio/{kind}": ratio for kind, ratio in zip(self.sizes, ratios_K, strict=True)}

    def _sample(self) -> Tensor:
        local = [_local(parameter).detach() for parameter in self.parameters]
        self._views = self._views or [_sampled(each) for each in local]
        for index, each in enumerate(local):
            if each.data_ptr() != self._views[index].data_ptr():  # the parameter has moved, or the view is of a copy
                self._views[index] = _sampled(each)
        sample_S = torch.empty_like(self.root_S)
        parts_S = sample_S.split([view.numel() for view in self._views])
        torch._foreach_copy_([part.view_as(view) for part, view in zip(parts_S, self._views, strict=True)], self._views)
        return sample_S


def _steps(tensor: Tensor) -> tuple[int, int]:
    """How many entries apart the sampled runs of a parameter begin, and how many entries they have together."""
    entries = tensor.numel()
    if entries <= SAMPLE:
        return RUN, entries
    runs = entries // RUN
    stride = -(-runs // (SAMPLE // RUN))
    while math.gcd(stride, max(tensor.shape[-1] // RUN, 1)) > 1:
        stride += 1
    return stride * RUN, len(range(0, runs, stride)) * RUN


def _sampled(tensor: Tensor) -> Tensor:
    """A view of the sampled entries, which begins where the tensor does; of a tensor that is not contiguous a copy."""
    flat = tensor.flatten()
    apart, taken = _steps(tensor)
    if taken == len(flat):
        return flat
    return flat[: len(flat) // RUN * RUN].view(-1, RUN)[:: apart // RUN]


def _local(parameter: Tensor) -> Tensor:
    return parameter.to_local() if isinstance(parameter, DTensor) else parameter
