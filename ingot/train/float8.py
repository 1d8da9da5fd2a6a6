"""Large matrix products in float8: x and W in e4m3, gradients in e5m2, sums in the matrix units' float32.

    y  = s_x s_W (x/s_x)₈ (W/s_W)₈ᵀ           s = max|·| / largest float8,   one per tensor, or one per row of each factor
    ∂x = s_g s_W (g/s_g)₈ (W/s_W)₈            each product has scales along what it does not sum over
    ∂W = s_g s_x (g/s_g)₈ᵀ (x/s_x)₈

Scales are those of the tensor itself (Micikevicius et al., arXiv 2209.05433), computed anew each time: nothing to remember and
nothing to go stale. One scale per tensor is faster; one per row survives outliers. Only products of matrices with at least
`SMALLEST` rows and columns gain from it: below that, converting costs more than it saves. The head, the embedding and routers
do not change. Of a layer that tensor parallelism divides, a rank's part counts, and has scales of its own. The casts and products
are in kernels/quantised/float8.py.

The kernel's matrices are whole tiles, also where ∂W sums over the tokens: rows of zeros fill the last one, which change no scale
and no sum.

Shapes: N tokens, I inputs, O outputs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from ingot.kernels.quantised.float8 import Scaling, cast_both, multiply_cast, product, scale_of
from ingot.model.linear import Linear
from ingot.model.order import local
from ingot.model.transformer import Transformer
from ingot.workspace.errors import RecipeError

SMALLEST = 1024
OLDEST = (8, 9)  # compute capability with float8 products
ALIGNED = 16  # rows and columns of the kernel's matrices
FORWARD, BACKWARD = torch.float8_e4m3fn, torch.float8_e5m2


def use_float8(model: Transformer, scaling: Scaling) -> int:
    """Make the large linear layers of the blocks multiply in float8; returns how many there are."""
    if torch.cuda.is_available() and torch.cuda.get_device_capability() < OLDEST:
        raise RecipeError(
            f"{torch.cuda.get_device_name()} has no float8 products",
            place="precision",
            fix="use precision: bfloat16, or a device of the Ada or Hopper generation or newer",
        )
    count = 0
    for block in model.blocks:
        large = [each for each in block.modules() if isinstance(each, Linear) and is_large(*local(each.weight).shape)]
        for layer in large:
            layer.multiply = multiply_by_row if scaling == "row" else multiply_by_tensor
        count += len(large)
    return count


def float8_layers(model: Transformer) -> list[str]:
    """The names of the layers that multiply in float8."""
    ours = (multiply_by_tensor, multiply_by_row)
    return [name for name, each in model.named_modules() if isinstance(each, Linear) and each.multiply in ours]


def is_large(out: int, into: int) -> bool:
    """Whether a product with a matrix of this shape, or with a rank's part of it, is made in float8."""
    return min(out, into) >= SMALLEST and out % ALIGNED == into % ALIGNED == 0


def fits(module: Linear) -> bool:
    """Whether the kernel takes the shape of this layer, or of this rank's part of it."""
    return all(size % ALIGNED == 0 for size in local(module.weight).shape)


def _multiply(x: Tensor, weight: Tensor, bias: Tensor | None, scaling: Scaling) -> Tensor:
    device = x.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype
    rows = x.reshape(-1, x.shape[-1])
    missing = -len(rows) % ALIGNED
    run = _ByTensor if scaling == "tensor" else _ByRow
    tiles = pad(rows.to(dtype), (0, 0, 0, missing)) if missing else rows.to(dtype)
    out: Tensor = run.apply(tiles, weight.to(dtype))  # type: ignore[no-untyped-call]
    out = out[: len(rows)].unflatten(0, x.shape[:-1]) if missing else out.unflatten(0, x.shape[:-1])
    return out if bias is None else out + bias.to(dtype)


# Functions, not objects: layers share compiled code only if they hold the same object.
def multiply_by_tensor(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """y = x Wᵀ + b with the product in float8 and a scale per tensor."""
    return _multiply(x, weight, bias, "tensor")


def multiply_by_row(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """y = x Wᵀ + b with the product in float8 and a scale per row."""
    return _multiply(x, weight, bias, "row")


class _ByTensor(torch.autograd.Function):
    """Each factor is cast once, in both layouts: all that is saved for the backward pass is in float8."""

    @staticmethod
    def forward(context: Any, x_NI: Tensor, weight_OI: Tensor) -> Tensor:
        x_scale, weight_scale = scale_of(x_NI, FORWARD), scale_of(weight_OI, FORWARD)
        x_8, x_8T = cast_both(x_NI, x_scale, FORWARD)
        weight_8, weight_8T = cast_both(weight_OI, weight_scale, FORWARD)
        context.save_for_backward(x_8T, x_scale, weight_8T, weight_scale)
        return multiply_cast(x_8, x_scale, weight_8, weight_scale, x_NI.dtype, fast=True)

    @staticmethod
    def backward(context: Any, gradient_NO: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x_8T, x_scale, weight_8T, weight_scale = context.saved_tensors
        scale = scale_of(gradient_NO, BACKWARD)
        gradient_8, gradient_8T = cast_both(gradient_NO, scale, BACKWARD)
        dtype, x, weight = gradient_NO.dtype, None, None
        if context.needs_input_grad[0]:
            x = multiply_cast(gradient_8, scale, weight_8T, weight_scale, dtype, fast=False)
        if context.needs_input_grad[1]:
            weight = multiply_cast(gradient_8T, scale, x_8T, x_scale, dtype, fast=False)
        return x, weight


class _ByRow(torch.autograd.Function):
    """A product has the scales of its own rows: the same factor is cast anew for each of its products."""

    @staticmethod
    def forward(context: Any, x_NI: Tensor, weight_OI: Tensor) -> Tensor:
        context.save_for_backward(x_NI, weight_OI)
        return product(x_NI, weight_OI, "row", FORWARD, FORWARD, fast=True)

    @staticmethod
    def backward(context: Any, gradient_NO: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x_NI, weight_OI = context.saved_tensors
        x = weight = None
        if context.needs_input_grad[0]:
            x = product(gradient_NO, weight_OI.T, "row", BACKWARD, FORWARD, fast=False)
        if context.needs_input_grad[1]:
            weight = product(gradient_NO.T, x_NI.T, "row", BACKWARD, FORWARD, fast=False)
        return x, weight
