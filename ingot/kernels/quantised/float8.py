"""Scaled float8: casts to it, and products of cast tensors.

    s = max|x| / largest float8        x₈ = round(x / s)        left · rightᵀ ≈ s_left s_right left₈ · right₈ᵀ

A scale is one number for a tensor, or one for each row [M, 1]. Products sum over the last dimension of both factors, and training
sums over every dimension of every factor once: `cast_both` makes x₈ and its transpose, on CUDA in one pass over x. Sampling sums
over the last one only: `cast_rows` finds the scale of each row and casts it, on CUDA in one kernel instead of six.
Without float8 hardware the same rounding is computed with ordinary products.

Shapes: M rows, K columns, N rows of the right factor.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from ingot.kernels.launch import has_triton

Scaling = Literal["tensor", "row"]
TINY = 1e-30  # a tensor of zeros has a scale too; gradients of large batches are small, and need their own
FLOAT8_DTYPES = (torch.float8_e4m3fn, torch.float8_e5m2)
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
WIDEST = 32_768  # a row is in the registers of one program


class Float8Rows(NamedTuple):
    """Values in float8 [M, K], and the scale of each row [M, 1] in float32."""

    values: Tensor
    scales: Tensor


def product(
    left_MK: Tensor, right_NK: Tensor, scaling: Scaling, left: torch.dtype, right: torch.dtype, *, fast: bool
) -> Tensor:
    """left · rightᵀ in the dtype of `left`, both cast to float8; `fast` adds up with less than full float32."""
    left_8, left_scale = to_float8(left_MK, left, scaling)
    right_8, right_scale = to_float8(right_NK, right, scaling)
    return multiply_cast(left_8.contiguous(), left_scale, right_8.contiguous(), right_scale, left_MK.dtype, fast=fast)


def multiply_cast(
    left_MK: Tensor, left_scale: Tensor, right_NK: Tensor, right_scale: Tensor, dtype: torch.dtype, *, fast: bool
) -> Tensor:
    """left · rightᵀ of tensors that are in float8 already, contiguous, with one scale each or one a row [·, 1]."""
    if left_MK.device.type != "cuda":
        exact = torch.promote_types(dtype, torch.float32)
        with torch.autocast(left_MK.device.type, enabled=False):  # which would round the scaled factors again
            out = (left_MK.to(exact) * left_scale.to(exact)) @ (right_NK.to(exact) * right_scale.to(exact)).T
        return out.to(dtype)
    by_row = right_scale.dim() > 0
    out = torch._scaled_mm(
        left_MK,
        right_NK.T,
        scale_a=left_scale,
        scale_b=right_scale.T if by_row else right_scale,
        out_dtype=torch.bfloat16 if by_row else dtype,  # CUTLASS's kernel for scales of rows writes nothing else
        use_fast_accum=fast,
    )
    return out if out.dtype == dtype else out.to(dtype)  # a compiler loses the gradient of what is returned as it came


def to_float8(x_MK: Tensor, dtype: torch.dtype, scaling: Scaling) -> tuple[Tensor, Tensor]:
    """The cast tensor and its scale, one number or one per row [M, 1]: x ≈ cast · scale."""
    scale = scale_of(x_MK, dtype, scaling)
    limit = torch.finfo(dtype).max
    return (x_MK.float() * (1 / scale)).clamp(-limit, limit).to(dtype), scale


def scale_of(x_MK: Tensor, dtype: torch.dtype, scaling: Scaling = "tensor") -> Tensor:
    """The largest value of the tensor, or of each row [M, 1], as a share of the largest float8."""
    size = x_MK.abs()
    largest = size.amax(dim=1, keepdim=True) if scaling == "row" else size.amax()
    share = (
        1 / torch.finfo(dtype).max
    )  # torch would multiply by it on CUDA and divide on a CPU: so both have the same bits
    return (largest.float() * share).clamp(min=TINY)


def cast_rows(x_MK: Tensor, dtype: torch.dtype) -> Float8Rows:
    """`to_float8` with a scale for each row."""
    if cast_rows_allowed(x_MK, dtype):
        from ingot.kernels.quantised.float8_kernel import launch_cast_rows

        return Float8Rows(*launch_cast_rows(x_MK, dtype, TINY))
    return Float8Rows(*to_float8(x_MK, dtype, "row"))


def cast_rows_allowed(x_MK: Tensor, dtype: torch.dtype) -> bool:
    """Whether the kernel of `cast_rows` can run; not where gradients are kept, and a compiler fuses the definition itself."""
    if (
        not x_MK.is_cuda
        or x_MK.dtype not in DTYPES
        or dtype not in FLOAT8_DTYPES
        or x_MK.shape[1] > WIDEST
        or not has_triton()
    ):
        return False
    return not torch.is_grad_enabled() and not torch.compiler.is_compiling()


def cast_both(x_MK: Tensor, scale: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """x / scale in float8 [M, K], and its transpose [K, M], both contiguous; one scale for the tensor."""
    if kernel_allowed(x_MK, scale, dtype):
        from ingot.kernels.quantised.float8_kernel import cast_both_triton

        return cast_both_triton(x_MK, scale, dtype)
    limit = torch.finfo(dtype).max
    cast = (x_MK.float() * (1 / scale)).clamp(-limit, limit).to(dtype)
    return cast, cast.T.contiguous()


def kernel_allowed(x_MK: Tensor, scale: Tensor, dtype: torch.dtype) -> bool:
    """Whether the kernel of `cast_both` can run."""
    return x_MK.is_cuda and x_MK.dtype in DTYPES and scale.dim() == 0 and dtype in FLOAT8_DTYPES
