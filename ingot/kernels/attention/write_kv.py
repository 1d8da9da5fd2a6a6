"""Decoding: makes the queries of new tokens from their projection, and writes their keys and values to the cache.

    q = rotate(norm(q)),   k = rotate(norm(k)) → its page,   v → its page

for every new token (qk_norm_rope.py). Most of a small model's decoding step is the launching of small operations: the kernel
(write_kv_kernel.py) replaces the splits, norms, rotations, casts and scattered writes of every layer.

Shapes: B rows, T new tokens, N = B·T, F = (H + 2K)·W, H query heads, K key heads, W head width, R rotated pairs, P tokens of a
page.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ingot.kernels.allow_list import understands
from ingot.kernels.launch import dependent_launch, has_triton, on_device_of, power_of_two
from ingot.kernels.layer.qk_norm_rope import ATTENTION_FIELDS, config_allowed, qk_norm_rope_definition

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
# those of qk_norm_rope, but for what changes keys or values between them and the cache
FIELDS = ATTENTION_FIELDS - {"dual_chunk"}
NORMS = ("none", "head", "full")  # all that come before the rotation
GATES = ("output",)


def write_kv_definition(
    projected_BTF: Tensor,
    keys: Tensor,
    values: Tensor,
    page_BT: Tensor,
    offset_BT: Tensor,
    cos_sin: tuple[Tensor, Tensor] | None,
    gains: tuple[Tensor, Tensor] | None,
    **options: Any,
) -> Tensor:
    """Queries [B, H, T, W]; keys and values are written to the streams [pages, K, P, W] at (page, offset).

    `options` are those of `qk_norm_rope`.
    """
    query, key, value = qk_norm_rope_definition(projected_BTF, cos_sin, gains, key_heads=keys.shape[1], **options)
    write_entries(keys, key, page_BT, offset_BT)
    write_entries(values, value, page_BT, offset_BT)
    return query


def write_entries(stream: Tensor, entries_BKTW: Tensor, page_BT: Tensor, offset_BT: Tensor) -> None:
    """Write the tokens' entries to a stream [pages, K, P, W]."""
    stream[page_BT, :, offset_BT] = entries_BKTW.transpose(1, 2).to(stream.dtype)


def config_writes_projection(attention: Any, norm: Any) -> bool:
    """Whether nothing lies between the layer's projection and its cache but what `write_kv` does."""
    if not config_allowed(attention, norm) or not understands(attention, FIELDS):
        return False
    return attention.query_key_norm in NORMS and (attention.gate is None or attention.gate.place in GATES)


def kernel_allowed(projected: Tensor) -> bool:
    """Whether the kernel can run: CUDA, at most 32 bits, no gradients."""
    return projected.is_cuda and projected.dtype in DTYPES and not torch.is_grad_enabled() and has_triton()


def write_kv(
    projected_BTF: Tensor,
    keys: Tensor,
    values: Tensor,
    page_BT: Tensor,
    offset_BT: Tensor,
    cos_sin: tuple[Tensor, Tensor] | None,
    gains: tuple[Tensor, Tensor] | None,
    *,
    heads: int,
    pairing: str = "halves",
    epsilon: float = 0.0,
    round_first: bool = True,
) -> Tensor:
    """The definition, by the kernel where it is allowed; only for layers of which `config_writes_projection` is true."""
    given = (keys, values, page_BT, offset_BT, cos_sin, gains)
    options: dict[str, Any] = {"heads": heads, "pairing": pairing, "epsilon": epsilon, "round_first": round_first}
    if not kernel_allowed(projected_BTF):
        return write_kv_definition(projected_BTF, *given, **options)
    query_NHW = launch(projected_BTF.flatten(0, 1), *given, **options)
    return query_NHW.unflatten(0, projected_BTF.shape[:2]).transpose(1, 2)


def launch(
    projected_NF: Tensor,
    keys: Tensor,
    values: Tensor,
    page_N: Tensor,
    offset_N: Tensor,
    cos_sin: tuple[Tensor, Tensor] | None,
    gains: tuple[Tensor, Tensor] | None,
    *,
    heads: int,
    pairing: str,
    epsilon: float,
    round_first: bool,
) -> Tensor:
    """Queries [N, H, W] by the kernel; cos and sin have N · R numbers."""
    from ingot.kernels.attention.write_kv_kernel import write_kv_kernel

    key_heads, page, width = keys.shape[1:]
    query_NHW = projected_NF.new_empty(len(projected_NF), heads, width)
    cos, sin = (query_NHW, query_NHW) if cos_sin is None else cos_sin
    query_gain, key_gain = (query_NHW, query_NHW) if gains is None else gains
    with on_device_of(query_NHW):
        write_kv_kernel[(len(projected_NF),)](
            projected_NF,
            query_NHW,
            keys,
            values,
            page_N,
            offset_N,
            cos,
            sin,
            query_gain,
            key_gain,
            epsilon,
            projected_NF.stride(0),
            HEADS=heads,
            KEYS=key_heads,
            P=page,
            W=width,
            R=0 if cos_sin is None else cos.shape[-1],
            BLOCK_H=power_of_two(heads + 2 * key_heads),
            BLOCK_W=power_of_two(width),
            NORM=gains is not None,
            INTERLEAVED=pairing == "interleaved",
            GAIN_AFTER_CAST=round_first,
            num_warps=4,
            **dependent_launch(query_NHW),
        )
    return query_NHW
