"""Linear layers that hold a quantised matrix, for models that are only sampled from.

    PackedLinear    y = x ŵᵀ + b                              integers of 8 or 4 bits (kernels/quantised/packed_linear.py)
    Float8Linear    y = s_x s_W (x/s_x)₈ (W/s_W)₈ᵀ + b        s: one for each token and each output (kernels/quantised/float8.py)

The first rounds weights only, the second activations too: it multiplies in float8 on the matrix units. What holds the matrix are
buffers, not parameters: they have no gradients, and they depend on the weight alone.

Shapes: M tokens, I inputs, O outputs.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ingot.kernels.quantised.float8 import Float8Rows, cast_rows, multiply_cast
from ingot.kernels.quantised.packed_linear import Packed, packed_linear, unpack

Pack = Callable[[Tensor], Packed | Float8Rows]


class QuantisedLinear(nn.Module):
    """Holds what `pack` makes of a weight in full precision, and packs new weights with it."""

    def __init__(self, weight: Tensor, bias: Tensor | None, pack: Pack) -> None:
        super().__init__()
        self.pack, self.dtype = pack, weight.dtype
        self.bias = None if bias is None else nn.Parameter(bias.detach(), requires_grad=False)
        for name, tensor in pack(weight.detach())._asdict().items():
            self.register_buffer(name, tensor)

    def pack_parts(self, weight: Tensor) -> dict[str, Tensor]:
        """What the buffers hold for a new weight, rounded to the layer's own dtype first; where the weight is."""
        parts = self.pack(weight.to(self.dtype))._asdict()
        return {name: tensor for name, tensor in parts.items() if tensor is not None}


class PackedLinear(QuantisedLinear):
    """The buffers are those of kernels.packed_linear.Packed."""

    integers: Tensor
    scales: Tensor
    minimums: Tensor | None

    @property
    def weight(self) -> Tensor:
        """ŵ, written out at every call."""
        return unpack(Packed(self.integers, self.scales, self.minimums), self.dtype)

    def forward(self, x: Tensor) -> Tensor:
        return packed_linear(x, Packed(self.integers, self.scales, self.minimums), self.bias)


class Float8Linear(QuantisedLinear):
    """The buffers are those of kernels.float8.Float8Rows."""

    values: Tensor
    scales: Tensor

    @property
    def weight(self) -> Tensor:
        """s_W (W/s_W)₈, written out at every call."""
        return (self.values.float() * self.scales).to(self.dtype)

    def forward(self, x: Tensor) -> Tensor:
        device = x.device.type
        if torch.is_autocast_enabled(device):
            x = x.to(torch.get_autocast_dtype(device))
        cast_MI, scale_M1 = cast_rows(x.reshape(-1, x.shape[-1]), self.values.dtype)
        out_MO = multiply_cast(cast_MI, scale_M1, self.values, self.scales, x.dtype, fast=True)
        out = out_MO.view(*x.shape[:-1], len(self.values))
        return out if self.bias is None else out + self.bias.to(out.dtype)
