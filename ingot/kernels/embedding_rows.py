"""Adds the gradient of an embedding to a total: total[token_n] ← total[token_n] + row_n for all n.

torch's gradient of an embedding fills a matrix of zeros of the size of the weight, and another pass adds it to the gradient of
the head where the two share their weight. Here the rows are added in place.

Shapes: N rows, V vocabulary, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ingot.kernels.launch import has_triton


def add_rows(total_VD: Tensor, tokens_N: Tensor, rows_ND: Tensor) -> None:
    """Add the rows to those of the total."""
    if kernel_allowed(total_VD) and rows_ND.dtype in (torch.bfloat16, torch.float16):
        from ingot.kernels.embedding_rows_kernel import add_rows_triton

        add_rows_triton(total_VD, tokens_N, rows_ND)
    else:
        total_VD.index_add_(0, tokens_N, rows_ND.to(total_VD.dtype))


def kernel_allowed(total_VD: Tensor) -> bool:
    """Whether the kernel adds to a total like this; rows must be in 16 bits."""
    return total_VD.is_cuda and total_VD.dtype == torch.float32 and total_VD.is_contiguous() and has_triton()
