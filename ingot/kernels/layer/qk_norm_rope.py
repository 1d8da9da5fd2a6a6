"""Splits a layer's joint projection [queries | keys | values] into heads, with QK-norm and rotary positions applied.

    q = rotate(norm(q))      k = rotate(norm(k))      v = v

norm is an RMS norm per head (only with gains), rotate the rotary position embedding (only with cos and sin; rotate.py).

The kernel (qk_norm_rope_kernel.py) makes the heads in one pass, and the projection's gradient in another. It computes in float32
and rounds once. Its outputs are contiguous as [B, T, heads, W], the layout that fused attention reads.

Shapes: B rows, T tokens, H query heads, K key and value heads, W head width, R rotated pairs of channels, F = (H + 2K)·W.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ingot.kernels.allow_list import understands
from ingot.kernels.launch import has_triton
from ingot.kernels.layer.rms_norm import rms_norm_definition
from ingot.kernels.layer.rotate import rotate_definition

DTYPES = (torch.bfloat16, torch.float16)
# the fields of a layer's configuration that are given to this operation, or that act before or after it
ATTENTION_FIELDS = frozenset(
    {
        "kind",
        "heads",
        "key_value_heads",
        "head_width",
        "rope",
        "query_key_norm",
        "query_key_value_bias",
        "output_bias",
        "scale",
        "key_multiplier",
        "temperature",
        "backend",
        "softcap",
        "sinks",
        "gate",
        "window",
        "chunk",
        "dual_chunk",
    }
)
ROPE_FIELDS = frozenset(("base", "pairing", "share", "scaling"))
NORM_FIELDS = frozenset(("epsilon", "zero_centred", "cast"))

Heads = tuple[Tensor, Tensor, Tensor]


def qk_norm_rope_definition(
    projected_BTF: Tensor,
    cos_sin: tuple[Tensor, Tensor] | None,
    gains: tuple[Tensor, Tensor] | None,
    *,
    heads: int,
    key_heads: int,
    pairing: str = "halves",
    epsilon: float = 0.0,
    round_first: bool = True,
) -> Heads:
    """Queries [B, H, T, W], keys and values [B, K, T, W].

    `cos_sin` are [B or 1, 1, T, R]; `gains` [W] are those of the queries' and the keys' norm.
    """
    width = projected_BTF.shape[-1] // (heads + 2 * key_heads)
    parts = projected_BTF.unflatten(-1, (-1, width)).transpose(1, 2).split((heads, key_heads, key_heads), dim=1)
    query, key, value = parts
    if gains is not None:
        query = rms_norm_definition(query, gains[0], epsilon, round_first)
        key = rms_norm_definition(key, gains[1], epsilon, round_first)
    if cos_sin is not None:
        query, key = rotate_definition(query, *cos_sin, pairing), rotate_definition(key, *cos_sin, pairing)
    return query, key, value


def config_allowed(attention: Any, norm: Any) -> bool:
    """Whether every option that is set in a layer's AttentionConfig and NormConfig is known here."""
    rope = attention.rope
    known = understands(attention, ATTENTION_FIELDS) and understands(norm, NORM_FIELDS)
    return known and (rope is None or understands(rope, ROPE_FIELDS))


def kernel_allowed(projected: Tensor, cos_sin: tuple[Tensor, Tensor] | None, width: int) -> bool:
    """Whether the kernel can run: CUDA, 16 bits, heads of an even width that are rotated."""
    return projected.is_cuda and projected.dtype in DTYPES and cos_sin is not None and width % 2 == 0 and has_triton()


def qk_norm_rope(
    projected_BTF: Tensor,
    cos_sin: tuple[Tensor, Tensor] | None,
    gains: tuple[Tensor, Tensor] | None,
    *,
    heads: int,
    key_heads: int,
    pairing: str = "halves",
    epsilon: float = 0.0,
    round_first: bool = True,
    kernel: bool = True,
) -> Heads:
    """By the kernel where it can run, else by the definition; `kernel` is what `config_allowed` says of the layer."""
    width = projected_BTF.shape[-1] // (heads + 2 * key_heads)
    if not kernel or cos_sin is None or not kernel_allowed(projected_BTF, cos_sin, width):
        options: dict[str, Any] = {"pairing": pairing, "epsilon": epsilon, "round_first": round_first}
        return qk_norm_rope_definition(projected_BTF, cos_sin, gains, heads=heads, key_heads=key_heads, **options)
    from ingot.kernels.layer.qk_norm_rope_kernel import qk_norm_rope_forward

    stacked = None if gains is None else torch.stack(gains).float()
    parts = qk_norm_rope_forward(projected_BTF, *cos_sin, stacked, heads, key_heads, epsilon, pairing == "interleaved")
    query, key, value = (part.transpose(1, 2) for part in parts)
    return query, key, value
