"""Weighted sums of gathered rows: what the experts of a token have made, added up.

    out[n] = Σ_k weight[n, k] · rows[place[n, k]]        in float32 or better, k = 0, 1, …

The definition is one addition a choice, not a sum over an axis of them: whole rows are read in one piece, and a compiler makes
one kernel of it that runs at the speed of the memory. Code that is not compiled, as a step of decoding, would launch four
kernels a choice: there it is one (sum_rows_kernel.py).

Shapes: N tokens, K rows of a sum, R rows, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ingot.kernels.launch import has_triton

DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def sum_rows_definition(rows_RD: Tensor, places_NK: Tensor, weights_NK: Tensor | None = None) -> Tensor:
    """Σ_k of rows [N, D]; without weights the plain sum."""
    total_ND: Tensor | None = None
    exact = torch.promote_types(rows_RD.dtype, torch.float32)
    for choice, places_N in enumerate(places_NK.unbind(1)):
        part_ND = rows_RD[places_N].to(exact)
        if weights_NK is not None:
            part_ND = part_ND * weights_NK[:, choice, None]
        total_ND = part_ND if total_ND is None else total_ND + part_ND
    assert total_ND is not None, "a sum has at least one row"
    return total_ND


def kernel_allowed(rows_RD: Tensor) -> bool:
    """The kernel takes: CUDA, at most float32; no gradients, no compiled code."""
    if not rows_RD.is_cuda or rows_RD.dtype not in DTYPES or not has_triton():
        return False
    return not torch.is_grad_enabled() and not torch.compiler.is_compiling()


def sum_rows(rows_RD: Tensor, places_NK: Tensor, weights_NK: Tensor | None = None) -> Tensor:
    """By the kernel where it can run, else by the definition."""
    if not kernel_allowed(rows_RD):
        return sum_rows_definition(rows_RD, places_NK, weights_NK)
    from ingot.kernels.experts.sum_rows_kernel import launch

    return launch(rows_RD, places_NK, weights_NK)
