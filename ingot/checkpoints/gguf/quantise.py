"""Packs float32 values into the formats of GGUF tensors, with the bits of ggml's reference quantiser.

    F16, BF16   the nearest number, ties to even
    Q8_0        d = max|x| / 127,  q = round(x / d), halves away from zero
    Q4_0        d = m / −8 where m is the first value of the largest size,  q = ⌊x / d + 8.5⌋, at most 15

A row is cut into blocks of 32 values. 1 / d is taken in float32, before d is rounded to float16, and every operation rounds to
float32: other orders give other bits in a value of a million (a llama.cpp that was compiled to fuse products and sums is one).

Shapes: N blocks of 32 values.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ingot.checkpoints.gguf.quants import BLOCKS, Block

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]
KINDS = {block.name: number for number, block in BLOCKS.items()}
"""The number of each format by its name."""


def quantise(rows: Tensor, kind: int) -> Bytes:
    """Rows of values [rows, values] as rows of blocks [rows, bytes]."""
    block = BLOCKS[kind]
    values = rows.reshape(-1, rows.shape[-1])
    if block.name in STORED:
        return values.to(STORED[block.name]).contiguous().view(torch.uint8).numpy().reshape(len(values), -1)
    blocks_N = values.float().contiguous().numpy().reshape(-1, block.values)
    return PACK[block.name](blocks_N, block).reshape(len(values), -1)


def _q8_0(blocks_N: Floats, block: Block) -> Bytes:
    scale_N = np.abs(blocks_N).max(axis=1, keepdims=True) / np.float32(127)
    scaled = blocks_N * _inverse(scale_N)
    whole = np.floor(np.abs(scaled))
    rounded = np.copysign(whole + np.floor(2 * (np.abs(scaled) - whole)), scaled)
    return _joined(scale_N, rounded.astype(np.int8).view(np.uint8), block)


def _q4_0(blocks_N: Floats, block: Block) -> Bytes:
    largest = np.abs(blocks_N).argmax(axis=1, keepdims=True)
    scale_N = np.take_along_axis(blocks_N, largest, axis=1) / np.float32(-8)
    integers = np.minimum(np.trunc(blocks_N * _inverse(scale_N) + np.float32(8.5)), 15).astype(np.uint8)
    half = block.values // 2
    high = np.left_shift(integers[:, half:], 4, dtype=np.uint8)
    return _joined(scale_N, integers[:, :half] | high, block)


def _inverse(scale_N: Floats) -> Floats:
    """1 / d, and 0 for a block of zeros."""
    with np.errstate(divide="ignore"):
        return np.where(scale_N == 0, np.float32(0), np.float32(1) / scale_N)


def _joined(scale_N: Floats, packed: Bytes, block: Block) -> Bytes:
    out = np.empty((len(packed), block.size), np.uint8)
    with np.errstate(over="ignore"):  # a scale beyond float16 is infinite, as in ggml
        out[:, :2] = scale_N.astype("<f2").view(np.uint8)
    out[:, 2:] = packed
    return out


STORED = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
PACK: dict[str, Callable[[Floats, Block], Bytes]] = {"Q8_0": _q8_0, "Q4_0": _q4_0}
