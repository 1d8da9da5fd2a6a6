"""Frozen weights in fewer bits: bfloat16, int4 or nf4, unpacked for each product and forgotten again.

    forward   y = x Ŵᵀ + b          backward   ∂x = ∂y Ŵ

Autograd would keep the unpacked Ŵ of every layer for the backward pass, which is all the memory that packing saved. Here only the
packed form is kept, and Ŵ is unpacked once more. The weight has no gradient.

Blocks of weights with a common scale do not end where ranks divide a matrix. So every rank of a mesh holds all of the packed
form, and one that has only some rows or columns (tensor parallelism) takes these from the unpacked Ŵ: the numbers of one process.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from ingot.kernels.quantised.nf4 import BLOCK, Nf4, pack_nf4, unpack_nf4
from ingot.kernels.quantised.pack_weights import group_for, pack_4
from ingot.kernels.quantised.packed_linear import Packed, unpack
from ingot.workspace.errors import RecipeError

LARGEST_GROUP = 64  # of int4: as many weights to a scale as nf4 has

Form = Literal["bfloat16", "int4", "nf4"]


class FrozenMatrix(nn.Module, ABC):
    """A matrix [outputs, inputs] that is never trained. Its buffers are no part of a checkpoint: they follow from the base's."""

    taken: tuple[int, Tensor] | None = None  # an axis, and the numbers of the rows or columns that are used; None: all

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.shape = tuple(weight.shape)
        for name, tensor in self.packed(weight).items():
            self.register_buffer(name, tensor, persistent=False)

    @abstractmethod
    def packed(self, weight: Tensor) -> dict[str, Tensor]:
        """The buffers of a weight."""

    @abstractmethod
    def matrix(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """Ŵ."""

    def own(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """What this rank uses of Ŵ."""
        whole = self.matrix(dtype)
        if self.taken is None:
            return whole
        axis, numbers = self.taken
        return whole.index_select(axis, numbers.to(whole.device))

    @torch.no_grad()
    def store(self, weight: Tensor) -> None:
        """Hold another weight of the same shape."""
        for name, tensor in self.packed(weight).items():
            self.get_buffer(name).copy_(tensor)

    def product(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """x Ŵᵀ + b in the dtype of x (under autocast in autocast's)."""
        device = x.device.type
        if torch.is_autocast_enabled(device):
            x = x.to(torch.get_autocast_dtype(device))
        y: Tensor = _FrozenProduct.apply(x, self)  # type: ignore[no-untyped-call]
        return y if bias is None else y + bias.to(y.dtype)


class _FrozenProduct(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor, matrix: FrozenMatrix) -> Tensor:
        context.matrix = matrix
        return linear(x, matrix.own(x.dtype))

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient @ context.matrix.own(gradient.dtype), None


class Bf16Matrix(FrozenMatrix):
    """Rounded to bfloat16."""

    rounded: Tensor

    def packed(self, weight: Tensor) -> dict[str, Tensor]:
        return {"rounded": weight.to(torch.bfloat16)}

    def matrix(self, dtype: torch.dtype = torch.float32) -> Tensor:
        return self.rounded.to(dtype)


class Int4Matrix(FrozenMatrix):
    """4 bits, evenly spaced, with a scale and a minimum for a group of inputs (kernels/quantised/pack_weights.py)."""

    integers: Tensor
    scales: Tensor
    minimums: Tensor

    def packed(self, weight: Tensor) -> dict[str, Tensor]:
        group = group_for(weight.shape[1], LARGEST_GROUP)
        if group is None:
            raise RecipeError(
                f"int4 takes groups of at least 32 inputs, and a layer has {weight.shape[1]}",
                place="lora.base",
                fix="use base: nf4, whose blocks need not fit the rows",
            )
        found = pack_4(weight, group)
        assert found.minimums is not None
        return {"integers": found.integers, "scales": found.scales, "minimums": found.minimums}

    def matrix(self, dtype: torch.dtype = torch.float32) -> Tensor:
        return unpack(Packed(self.integers, self.scales, self.minimums), dtype)


class Nf4Matrix(FrozenMatrix):
    """4 bits at the quantiles of a normal distribution, with doubly quantised scales (kernels/quantised/nf4.py)."""

    codes: Tensor
    scales: Tensor
    scale_maxima: Tensor
    scale_mean: Tensor

    def packed(self, weight: Tensor) -> dict[str, Tensor]:
        if weight.numel() % BLOCK:
            raise RecipeError(
                f"nf4 takes blocks of {BLOCK} weights, and a layer has {weight.shape[0]} × {weight.shape[1]}",
                place="lora.base",
                fix="use base: bfloat16",
            )
        return pack_nf4(weight)._asdict()

    def matrix(self, dtype: torch.dtype = torch.float32) -> Tensor:
        packed = Nf4(self.codes, self.scales, self.scale_maxima, self.scale_mean)
        return unpack_nf4(packed, self.shape, dtype)


FORMS: dict[Form, type[FrozenMatrix]] = {"bfloat16": Bf16Matrix, "int4": Int4Matrix, "nf4": Nf4Matrix}


def freeze_matrix(weight: Tensor, form: Form) -> FrozenMatrix:
    """The weight in this form."""
    return FORMS[form](weight)
