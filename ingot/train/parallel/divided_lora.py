"""Tensor-parallel layers with adapters (model/lora.py): the frozen weight and one of A and B are cut, the other is on every rank.

    cut by outputs   y_rank = W_rank x + s·B_rank A x            A [r, inputs] is whole, B is cut like the rows of W
    cut by inputs    y = Σ_ranks W_rank x_rank + s·B A_rank x_rank      A is cut like the columns of W, B [outputs, r] is whole

A rank uses the whole matrix for its own part of the result only, so it passes `enter` (ties.py): every rank then has the same
gradient of it. A layer becomes one of these as a plain one does (divided.py), by a change of its class.
"""

from __future__ import annotations

from torch import Tensor, distributed

from ingot.model.lora import LoraLinear, LowRank
from ingot.model.order import local
from ingot.train.parallel.ties import enter, leave


class _DividedLora(LoraLinear):
    group: distributed.ProcessGroup

    def base_matrix(self) -> Tensor:
        return local(self.weight) if self.frozen is None else self.frozen.own()


class LoraOutputs(_DividedLora):
    """A layer of which this rank has some outputs of every projection."""

    def forward(self, x: Tensor) -> Tensor:
        return self.adapt(x, self.base_product(x, None if self.bias is None else local(self.bias)))


class LoraInputs(_DividedLora):
    """A layer of which this rank has some inputs: the products are summed over the ranks, then the bias is added."""

    def forward(self, x: Tensor) -> Tensor:
        summed = leave(self.adapt(x, self.base_product(x, None)), self.group)
        return summed if self.bias is None else summed + self.bias.to(summed.dtype)


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
