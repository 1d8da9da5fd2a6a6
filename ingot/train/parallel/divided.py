"""Tensor-parallel layers: the shard of a rank, and what the ranks exchange around the layer's own forward pass (tensor.py).

    by outputs    y_rank = W_rank x + b_rank                 adapters: A [r, inputs] is whole, B is cut like the rows of W
    by inputs     y = Σ_ranks W_rank x_rank + b              adapters: A is cut like the columns of W, B [outputs, r] is whole
    norm          the mean square of a row is that of all ranks' channels

The arithmetic is that of the layer (model/linear.py, norm.py, lora.py, experts.py). A layer becomes one of these by a change of
its class, so that its parameters, hooks and name in the model stay. Parameters that are cut are DTensors, of which a layer uses
what is on its rank. What is whole on every rank but used for a part of the result passes `enter` (ties.py): then every rank has
the same gradient of it.
"""

from __future__ import annotations

import torch
from torch import Tensor, distributed

from ingot.kernels.layer.rms_norm import MeanSquare
from ingot.model.feed_forward.experts import Experts
from ingot.model.linear import Linear
from ingot.model.lora import LoraLinear, LowRank
from ingot.model.norm import RmsNorm
from ingot.model.order import local
from ingot.train.parallel.ties import enter, leave, share


class ByOutputs(Linear):
    """A linear layer of which this rank has some outputs."""

    group: distributed.ProcessGroup

    def weight_shard(self) -> Tensor:
        return local(self.weight)

    def bias_shard(self) -> Tensor | None:
        return None if self.bias is None else local(self.bias)


class ByInputs(Linear):
    """A linear layer of which this rank has some inputs: the products are summed over the ranks, then the bias is added."""

    group: distributed.ProcessGroup

    def weight_shard(self) -> Tensor:
        return local(self.weight)

    def bias_shard(self) -> Tensor | None:
        return None

    def forward(self, x: Tensor) -> Tensor:
        summed = leave(super().forward(x), self.group)
        return summed if self.bias is None else summed + self.bias.to(summed.dtype)


class LoraByOutputs(ByOutputs, LoraLinear):
    """The same of a layer with adapters: some outputs of every projection."""


class LoraByInputs(ByInputs, LoraLinear):
    """The same of a layer with adapters."""


class SharedA(LowRank):
    """The adapter of a layer that is cut by outputs."""

    group: distributed.ProcessGroup

    def factors(self) -> tuple[Tensor, Tensor]:
        return enter(self.lora_A, self.group), local(self.lora_B)


class SharedB(LowRank):
    """The adapter of a layer that is cut by inputs."""

    group: distributed.ProcessGroup

    def factors(self) -> tuple[Tensor, Tensor]:
        return local(self.lora_A), enter(self.lora_B, self.group)


class SharedNorm(RmsNorm):
    """A norm of each head, with one gain for the heads of all ranks."""

    group: distributed.ProcessGroup

    def scale(self) -> Tensor | None:
        return None if self.gain is None else enter(self.gain, self.group)


class DividedNorm(RmsNorm):
    """A norm over channels of which this rank has some."""

    group: distributed.ProcessGroup

    def scale(self) -> Tensor | None:
        return None if self.gain is None else local(self.gain)

    def over_ranks(self) -> MeanSquare:
        return self._mean_square

    def _mean_square(self, x: Tensor) -> Tensor:
        # forward and backward are both sums over ranks: every rank's mean depends on every rank's channels
        own = x.square().mean(dim=-1, keepdim=True)
        return enter(leave(own, self.group), self.group) / self.group.size()


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
