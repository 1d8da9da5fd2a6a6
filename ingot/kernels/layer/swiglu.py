"""SwiGLU: silu(gate) ⊙ up of a joint projection [gate | up] (Shazeer, arXiv 2002.05202).

    out = g σ(g) u        ∂u = ∂ · g σ(g)        ∂g = ∂ · u σ(g) (1 + g (1 − σ(g)))

A compiler makes the same formulas of the definition, but joins ∂g and ∂u with a concatenation that reads its inputs twice. The
kernel (swiglu_kernel.py) is one pass forward and one backward; it computes in float32 and rounds once.

Shapes: […, 2·F] to […, F], with F the inner width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import silu

from ingot.kernels.allow_list import understands
from ingot.kernels.launch import has_triton

DTYPES = (torch.bfloat16, torch.float16)
# the fields of a FeedForwardConfig that act before or after this operation; at the defaults of all others it is SwiGLU
FIELDS = frozenset(("kind", "width", "bias", "output_multiplier"))


def swiglu_definition(projected: Tensor) -> Tensor:
    """silu(gate) ⊙ up."""
    gate, up = projected.chunk(2, dim=-1)
    return silu(gate) * up


def is_swiglu(config: Any) -> bool:
    """Whether the activation of a FeedForwardConfig is silu(gate) ⊙ up and nothing else."""
    return understands(config, FIELDS)


def kernel_allowed(projected: Tensor) -> bool:
    """Whether the kernel can run: CUDA, 16 bits."""
    return projected.is_cuda and projected.dtype in DTYPES and has_triton()


def swiglu(projected: Tensor) -> Tensor:
    """By the kernel where it can run, else by the definition."""
    if not kernel_allowed(projected):
        return swiglu_definition(projected)
    from ingot.kernels.layer.swiglu_kernel import launch, swiglu_forward

    if torch.is_grad_enabled() or torch.compiler.is_compiling():
        return swiglu_forward(projected)
    return launch(projected)  # the operator would cost a step of decoding more than the kernel
