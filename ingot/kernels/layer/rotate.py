"""Rotary positions: rotates pairs of channels of every head by an angle that depends on the token, and passes the others.

    (a, b)  ->  (a cos θ − b sin θ,  b cos θ + a sin θ)

The 2R channels from `begin` on are rotated. A pair is channels i and i + R of them ("halves": Llama, Qwen, …) or channels 2i and
2i + 1 ("interleaved": DeepSeek, Llama 4); model/positions/rope.py makes the angles.

In training torch.compile fuses the definition with its surroundings. In sampling nothing is compiled, and the definition is eight
small operations, of which the kernel (rotate_kernel.py) makes one. A layer of latent attention rotates twice, and two times more
where an indexer chooses its keys: a tenth and a fifth of its decoding step, of one row.

Shapes: B rows, T tokens, W channels of a head, R rotated pairs; x is [B, heads, T, W], cos and sin [B or 1, 1, T, R] in float32.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ingot.kernels.launch import has_triton

DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def rotate_definition(x: Tensor, cos: Tensor, sin: Tensor, pairing: str, begin: int = 0) -> Tensor:
    """In float32 at least; keeps the dtype of `x`."""
    end = begin + 2 * cos.shape[-1]
    exact = x[..., begin:end].to(torch.promote_types(x.dtype, torch.float32))
    if pairing == "interleaved":
        first, second = exact[..., 0::2], exact[..., 1::2]
        pairs = (first * cos - second * sin, second * cos + first * sin)
        out = torch.stack(pairs, dim=-1).flatten(-2).to(x.dtype)
    else:
        first, second = exact.chunk(2, dim=-1)
        out = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(x.dtype)
    parts = [part for part in (x[..., :begin], out, x[..., end:]) if part.shape[-1]]
    return torch.cat(parts, dim=-1) if len(parts) > 1 else out


def kernel_allowed(x: Tensor, cos: Tensor) -> bool:
    """Whether the kernel can run: CUDA, at most 32 bits, angles in float32, no gradient, not under torch.compile, which
    fuses the definition itself."""
    if not x.is_cuda or x.dtype not in DTYPES or cos.dtype != torch.float32 or not has_triton():
        return False
    return not (torch.is_grad_enabled() or torch.compiler.is_compiling())


def rotate(x: Tensor, cos: Tensor, sin: Tensor, pairing: str, begin: int = 0) -> Tensor:
    """The definition, by the kernel where it is allowed."""
    if not kernel_allowed(x, cos):
        return rotate_definition(x, cos, sin, pairing, begin)
    from ingot.kernels.layer.rotate_kernel import launch

    return launch(x, cos, sin, pairing == "interleaved", begin)
