"""Products of a few tokens with the matrices of the experts that each chose: the linear layers of a mixture while it decodes.

    chosen_linear    out[n, k] = W[e] x[n] + b[e]                        e = the k-th expert of token n
    chosen_sum       out[n] = Σ_k weight[n, k] (W[e] x[n, k] + b[e])

The way for many tokens (grouped_linear.py) sorts the choices by expert, so that a matrix is read once for all its tokens. Where
there are fewer choices than experts most matrices are read for one token anyway, and sorting takes longer than the products. The
kernel (chosen_linear_kernel.py) reads for each choice the matrix it names. It sums in float32, in a fixed order, rounds once, and
can be part of a captured graph. The definition copies all these matrices out first.

Shapes: N tokens, K choices of a token, E experts, I and O the widths of a product.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ingot.kernels.launch import has_triton

DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def chosen_linear_definition(x: Tensor, weight_EOI: Tensor, bias_EO: Tensor | None, experts_NK: Tensor) -> Tensor:
    """Every input times the matrix of its expert [N, K, O]. Inputs: one of each token [N, I], or of each choice [N, K, I]."""
    x_NKI = x[:, None] if x.dim() == 2 else x
    out_NKO = (weight_EOI[experts_NK] @ x_NKI[..., None])[..., 0]
    return out_NKO if bias_EO is None else out_NKO + bias_EO[experts_NK]


def chosen_sum_definition(
    x_NKI: Tensor, weight_EOI: Tensor, bias_EO: Tensor | None, experts_NK: Tensor, weights_NK: Tensor | None
) -> Tensor:
    """The sum of a token's K products, weighed unless there are no weights [N, O]."""
    out_NKO = chosen_linear_definition(x_NKI, weight_EOI, bias_EO, experts_NK)
    return (out_NKO if weights_NK is None else out_NKO * weights_NK[..., None]).sum(1)


def kernel_allowed(x: Tensor, weight_EOI: Tensor, experts_NK: Tensor) -> bool:
    """The kernel takes: CUDA, matrices as they lie, at most as many choices as experts; no gradients, no compiled code."""
    if not x.is_cuda or x.dtype not in DTYPES or weight_EOI.dtype != x.dtype or not has_triton():
        return False
    if not weight_EOI.is_contiguous() or not 0 < experts_NK.numel() <= len(weight_EOI):
        return False
    return not torch.is_grad_enabled() and not torch.compiler.is_compiling()


def chosen_linear(x: Tensor, weight_EOI: Tensor, bias_EO: Tensor | None, experts_NK: Tensor) -> Tensor:
    """By the kernel where it can run, else by the definition."""
    if not kernel_allowed(x, weight_EOI, experts_NK):
        return chosen_linear_definition(x, weight_EOI, bias_EO, experts_NK)
    from ingot.kernels.experts.chosen_linear_kernel import launch_linear

    return launch_linear(x, weight_EOI, bias_EO, experts_NK)


def chosen_sum(
    x_NKI: Tensor, weight_EOI: Tensor, bias_EO: Tensor | None, experts_NK: Tensor, weights_NK: Tensor | None
) -> Tensor:
    """By the kernel where it can run, else by the definition."""
    if not kernel_allowed(x_NKI, weight_EOI, experts_NK):
        return chosen_sum_definition(x_NKI, weight_EOI, bias_EO, experts_NK, weights_NK)
    from ingot.kernels.experts.chosen_linear_kernel import launch_sum

    return launch_sum(x_NKI, weight_EOI, bias_EO, experts_NK, weights_NK)
