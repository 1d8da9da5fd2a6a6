"""Tensor-parallel layers: linear layers, norms and experts that hold a rank's share of the channels (tensor.py).

A layer becomes one of these by a change of its class, so that its parameters, hooks and name in the model stay. Parameters
that are cut are DTensors, of which a layer uses what is on its rank.
"""

from __future__ import annotations

import torch
from torch import Tensor, distributed

from ingot.model.feed_forward.experts import Experts
from ingot.model.linear import Linear
from ingot.model.norm import RmsNorm
from ingot.model.order import local
from ingot.train.parallel.ties import enter, leave, share


class _DividedLinear(Linear):
    group: distributed.ProcessGroup

    def matrix(self) -> Tensor:
        weight = local(self.weight)
        return weight if self.rounding is None else self.rounding(weight)


class DividedOutputs(_DividedLinear):
    """A linear layer of which this rank has some outputs."""

    def forward(self, x: Tensor) -> Tensor:
        return self.multiply(x, self.matrix(), None if self.bias is None else local(self.bias))


class DividedInputs(_DividedLinear):
    """A linear layer of which this rank has some inputs: the products are summed over the ranks, then the bias is added."""

    def forward(self, x: Tensor) -> Tensor:
        summed = leave(self.multiply(x, self.matrix(), None), self.group)
        return summed if self.bias is None else summed + self.bias.to(summed.dtype)


class SharedNorm(RmsNorm):
    """A norm of each head, with one gain for the heads of all ranks."""

    group: distributed.ProcessGroup

    def scale(self) -> Tensor | None:
        return None if self.gain is None else enter(self.gain, self.group)


class DividedNorm(RmsNorm):
    """A root-mean-square norm over channels of which this rank has some: the mean square is that of all ranks."""

    group: distributed.ProcessGroup

    def forward(self, x: Tensor) -> Tensor:
        assert self.gain is not None
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        # forward and backward are both sums over ranks: every rank's mean depends on every rank's channels
        mean = enter(leave(wide.square().mean(dim=-1, keepdim=True), self.group), self.group)
        normed = wide * torch.rsqrt(mean / self.group.size() + self.epsilon)
        gain = local(self.gain).to(wide.dtype)
        gain = 1 + gain if self.config.zero_centred else gain
        if self.config.cast == "before_gain":
            return normed.to(x.dtype) * gain.to(x.dtype)
        return (normed * gain).to(x.dtype)


class DividedExperts(Experts):
    """Stacked experts of which this rank has some inner channels."""

    group: distributed.ProcessGroup

    def forward(self, x_ND: Tensor, indices_NK: Tensor, weights_NK: Tensor) -> Tensor:
        out_ND = super().forward(enter(x_ND, self.group), indices_NK, enter(weights_NK, self.group))
        return leave(out_ND, self.group)

    def _weights(self, name: str, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
        weight, bias = super()._weights(name, dtype)
        if bias is not None and name == "down":  # it is whole on every rank, and the results will be summed
            bias = share(bias, self.group)
        return weight, bias
