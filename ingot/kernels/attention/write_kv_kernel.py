"""Triton kernel of write_kv.py. A program takes one token with all its heads, [queries | keys | values] by W channels."""

from __future__ import annotations

import triton
import triton.language as tl

from ingot.kernels.launch_kernel import launch_dependents, wait


@triton.jit
def write_kv_kernel(
    projected,
    query,
    keys,
    values,
    page_of,
    offset_of,
    cos,
    sin,
    query_gain,
    key_gain,
    epsilon,
    row_stride,
    HEADS: tl.constexpr,
    KEYS: tl.constexpr,
    P: tl.constexpr,
    W: tl.constexpr,
    R: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_W: tl.constexpr,
    NORM: tl.constexpr,
    INTERLEAVED: tl.constexpr,
    GAIN_AFTER_CAST: tl.constexpr,
    DEPENDENT_LAUNCH: tl.constexpr,
):
    if DEPENDENT_LAUNCH:
        launch_dependents()
        wait()
    token = tl.program_id(0).to(tl.int64)
    head = tl.arange(0, BLOCK_H)[:, None]
    channel = tl.arange(0, BLOCK_W)[None, :]
    inside = (head < HEADS + 2 * KEYS) & (channel < W)
    row = projected + token * row_stride
    dtype = projected.dtype.element_ty
    x = tl.load(row + head * W + channel, mask=inside, other=0.0).to(tl.float32)
    is_value = head >= HEADS + KEYS
    if R > 0:  # each channel needs its partner, which another thread has: it is read again
        if INTERLEAVED:
            partner = channel ^ 1
            pair = channel // 2
            first = channel % 2 == 0
        else:
            partner = tl.where(channel < R, channel + R, channel - R)
            pair = channel % R
            first = channel < R
        rotates = (channel < 2 * R) & ~is_value & inside
        y = tl.load(row + head * W + partner, mask=rotates, other=0.0).to(tl.float32)
    if NORM:
        is_query = head < HEADS
        gain = tl.load(query_gain + channel, mask=(channel < W) & is_query, other=0.0).to(tl.float32)
        gain += tl.load(key_gain + channel, mask=(channel < W) & (head >= HEADS) & ~is_value, other=0.0).to(tl.float32)
        scale = tl.rsqrt(tl.sum(x * x, axis=1) / W + epsilon)[:, None]
        if R > 0:
            y_gain = tl.load(query_gain + partner, mask=rotates & is_query, other=0.0).to(tl.float32)
            y_gain += tl.load(key_gain + partner, mask=rotates & ~is_query, other=0.0).to(tl.float32)
            y = _scaled(y, scale, y_gain, GAIN_AFTER_CAST, dtype)
        x = tl.where(is_value, x, _scaled(x, scale, gain, GAIN_AFTER_CAST, dtype))
    if R > 0:
        c = tl.load(cos + token * R + pair, mask=rotates, other=1.0)
        s = tl.load(sin + token * R + pair, mask=rotates, other=0.0)
        x = tl.where(rotates, tl.where(first, x * c - y * s, x * c + y * s), x)
    tl.store(query + token * HEADS * W + head * W + channel, x.to(dtype), mask=inside & (head < HEADS))
    page = tl.load(page_of + token)
    offset = tl.load(offset_of + token)
    # [page, head, offset, channel]
    index = page * KEYS * P * W + offset * W + channel
    key_head = head - HEADS
    tl.store(
        keys + index + key_head * P * W,
        x.to(keys.dtype.element_ty),
        mask=inside & (key_head >= 0) & (key_head < KEYS),
    )
    value_head = key_head - KEYS
    tl.store(values + index + value_head * P * W, x.to(values.dtype.element_ty), mask=inside & (value_head >= 0))


@triton.jit
def _scaled(x, scale, gain, GAIN_AFTER_CAST: tl.constexpr, dtype: tl.constexpr):
    """x · scale · gain, rounded before the gain or after it (rms_norm.py)."""
    if GAIN_AFTER_CAST:
        return ((x * scale).to(dtype) * gain.to(dtype)).to(tl.float32)
    return (x * scale * gain).to(dtype).to(tl.float32)
