"""The grouped matrix product: rows that are sorted by group, each multiplied with the matrix of its group.

    out[r] = W[e] · rows[r]        for the rows r = ends[e − 1] … ends[e] − 1 of every group e

torch has a kernel for it (`grouped_mm`) that needs rows of a multiple of 16 bytes and no float64; anything else is multiplied
slice by slice. In bfloat16 on Hopper and newer the kernel does not wait for the device; slices need their sizes on the host, and
so does the kernel elsewhere.

torch.compile takes that kernel in bfloat16 only, and it cannot look into sizes that are known on the device alone. In compiled
code all other products are therefore operators of our own, which it leaves whole; outside of it they would only cost time.

Shapes: R rows, E groups, I and O the widths of a product.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import grouped_mm, linear

KERNEL_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
KERNEL_BYTES = 16  # grouped_mm wants every row to begin at a multiple of this


def grouped_linear(rows_RI: Tensor, weight_EOI: Tensor, ends_E: Tensor) -> Tensor:
    """Row r times the matrix of its group, transposed [R, O]."""
    visible = rows_RI.dtype == torch.bfloat16 and has_kernel(rows_RI, *weight_EOI.shape[1:])
    if torch.compiler.is_compiling() and not visible:
        return grouped_product(rows_RI, weight_EOI, ends_E)
    return multiply(rows_RI, weight_EOI, ends_E)


def has_kernel(rows: Tensor, *widths: int) -> bool:
    """Whether torch's kernel multiplies rows of these widths, in the dtype of `rows`."""
    return rows.dtype in KERNEL_DTYPES and all(width * rows.element_size() % KERNEL_BYTES == 0 for width in widths)


def multiply(rows_RI: Tensor, weight_EOI: Tensor, ends_E: Tensor) -> Tensor:
    """The product itself, by the kernel or by slices; autograd differentiates it."""
    if has_kernel(rows_RI, *weight_EOI.shape[1:]):
        return grouped_mm(rows_RI, weight_EOI.transpose(1, 2), offs=ends_E)
    parts = zip(rows_RI.split(_sizes(ends_E)), weight_EOI.unbind(), strict=True)
    return torch.cat([linear(part, matrix) for part, matrix in parts])


@torch.library.custom_op("ingot::grouped_product", mutates_args=())
def grouped_product(rows_RI: Tensor, weight_EOI: Tensor, ends_E: Tensor) -> Tensor:
    """`multiply` as one operator."""
    return multiply(rows_RI, weight_EOI, ends_E)


@torch.library.custom_op("ingot::grouped_product_weights", mutates_args=())
def grouped_product_weights(gradient_RO: Tensor, rows_RI: Tensor, ends_E: Tensor) -> Tensor:
    """The gradient of the matrices: the sum over a group's rows of gradient ⊗ row [E, O, I]."""
    if has_kernel(rows_RI, gradient_RO.shape[1], rows_RI.shape[1]):
        return grouped_mm(gradient_RO.T, rows_RI, offs=ends_E)
    sizes = _sizes(ends_E)
    parts = zip(gradient_RO.split(sizes), rows_RI.split(sizes), strict=True)
    return torch.stack([gradient.T @ part for gradient, part in parts])


def _sizes(ends_E: Tensor) -> list[int]:
    """The rows of each group; waits for the device."""
    ends: list[int] = ends_E.tolist()
    return [end - begin for begin, end in zip([0, *ends], ends, strict=False)]


@grouped_product.register_fake
def _(rows_RI: Tensor, weight_EOI: Tensor, ends_E: Tensor) -> Tensor:
    return rows_RI.new_empty(rows_RI.shape[0], weight_EOI.shape[1])


@grouped_product_weights.register_fake
def _(gradient_RO: Tensor, rows_RI: Tensor, ends_E: Tensor) -> Tensor:
    return rows_RI.new_empty(ends_E.shape[0], gradient_RO.shape[1], rows_RI.shape[1])


def _remember(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _differentiate(ctx: Any, gradient_RO: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
    rows_RI, weight_EOI, ends_E = ctx.saved_tensors
    of_rows, of_weight, _ = ctx.needs_input_grad
    gradient_RO = gradient_RO.contiguous()
    return (
        grouped_product(gradient_RO, weight_EOI.transpose(1, 2), ends_E) if of_rows else None,
        grouped_product_weights(gradient_RO, rows_RI, ends_E) if of_weight else None,
        None,
    )


grouped_product.register_autograd(_differentiate, setup_context=_remember)
