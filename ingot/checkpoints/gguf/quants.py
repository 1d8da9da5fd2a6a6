"""Unpacks the block formats of GGUF tensors to float32.

A row is cut into blocks of 32 values (256 for the K formats). Each block holds small integers q and float16 scales:

    Q4_0, Q5_0, Q8_0    x = d·(q − offset)         4, 5, 8 bits, offset 8, 16, 0
    Q4_1, Q5_1          x = d·q + m                a smallest value m instead of an offset
    Q4_K, Q5_K          x = (d·s)·q − (dₘ·t)       8 groups of 32; s and t are 6-bit scales of the group
    Q6_K                x = (d·s)·(q − 32)         16 groups of 16; s is an 8-bit scale of the group

Low halves of bytes come first: byte i of a block of 32 holds value i below and value i + 16 above.

Invariant: every product and sum is one float32 operation in the order of ggml's reference, so the result has the same
bits on every machine, and the same as the `gguf` package gives.

Shapes: N blocks, G groups of a block.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]
CHUNK = 1 << 16  # values that are unpacked together: what is worked on stays in the processor's cache


class Block(NamedTuple):
    """A format: its name, how many values a block has, its bytes, and how [N, bytes] become values in `out` [N, values]."""

    name: str
    values: int
    size: int
    unpack: Callable[[Bytes, Floats], None]


def dequantise(rows: Bytes, block: Block) -> Floats:
    """Rows of blocks [rows, bytes] as float32 [rows, values]."""
    blocks_N = rows.reshape(-1, block.size)
    out_N = np.empty((len(blocks_N), block.values), np.float32)
    step = CHUNK // block.values
    for start in range(0, len(blocks_N), step):
        block.unpack(blocks_N[start : start + step], out_N[start : start + step])
    return out_N.reshape(len(rows), -1)


def _scale(blocks: Bytes, start: int) -> Floats:
    """The float16 at byte `start` of each block, [N, 1]."""
    return np.ascontiguousarray(blocks[:, start : start + 2]).view("<f2").astype(np.float32)


def _nibbles(packed: Bytes, run: int) -> Bytes:
    """4-bit integers [N, values]: each run of bytes holds `run` values below and the next `run` above."""
    packed = packed.reshape(len(packed), -1, run)
    out = np.empty((len(packed), packed.shape[1], 2, run), np.uint8)
    np.bitwise_and(packed, 15, out=out[:, :, 0])
    np.right_shift(packed, 4, out=out[:, :, 1])
    return out.reshape(len(packed), -1)


def _fifth_bits(packed: Bytes) -> Bytes:
    """16 times bit i of four bytes for each value i."""
    bits = np.unpackbits(np.ascontiguousarray(packed), axis=1, bitorder="little")
    bits <<= 4
    return bits


def _float32(blocks: Bytes, out: Floats) -> None:
    np.copyto(out, np.ascontiguousarray(blocks).view("<f4"))


def _float16(blocks: Bytes, out: Floats) -> None:
    np.copyto(out, np.ascontiguousarray(blocks).view("<f2"))


def _bfloat16(blocks: Bytes, out: Floats) -> None:
    """The upper half of a float32."""
    np.left_shift(np.ascontiguousarray(blocks).view("<u2"), 16, out=out.view(np.uint32), dtype=np.uint32)


def _q8_0(blocks: Bytes, out: Floats) -> None:
    np.copyto(out, blocks[:, 2:].view(np.int8))
    out *= _scale(blocks, 0)


def _q4_0(blocks: Bytes, out: Floats) -> None:
    np.copyto(out, _nibbles(blocks[:, 2:], 16))
    out -= 8
    out *= _scale(blocks, 0)


def _q4_1(blocks: Bytes, out: Floats) -> None:
    np.copyto(out, _nibbles(blocks[:, 4:], 16))
    out *= _scale(blocks, 0)
    out += _scale(blocks, 2)


def _q5_0(blocks: Bytes, out: Floats) -> None:
    np.copyto(out, _nibbles(blocks[:, 6:], 16) | _fifth_bits(blocks[:, 2:6]))
    out -= 16
    out *= _scale(blocks, 0)


def _q5_1(blocks: Bytes, out: Floats) -> None:
    np.copyto(out, _nibbles(blocks[:, 8:], 16) | _fifth_bits(blocks[:, 4:8]))
    out *= _scale(blocks, 0)
    out += _scale(blocks, 2)


def _group_scales(blocks: Bytes) -> tuple[Floats, Floats]:
    """d·s and dₘ·t of each of the 8 groups, [N, 8, 1].

    Bytes 4 to 15 pack them: s₀…s₃ and t₀…t₃ are the low 6 bits of four bytes each; s₄…s₇ and t₄…t₇ have their low 4
    bits in the two halves of the last four bytes, and their high 2 bits above s₀…s₃ and t₀…t₃.
    """
    first, second, third = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    scales = np.concatenate([first & 63, third & 15 | first >> 2 & 48], axis=1)
    lowest = np.concatenate([second & 63, third >> 4 | second >> 2 & 48], axis=1)
    return (
        (_scale(blocks, 0) * scales.astype(np.float32))[:, :, None],
        (_scale(blocks, 2) * lowest.astype(np.float32))[:, :, None],
    )


def _q4_k(blocks: Bytes, out: Floats) -> None:
    scale_NG, lowest_NG = _group_scales(blocks)
    np.copyto(out, _nibbles(blocks[:, 16:], 32))
    groups = out.reshape(len(out), 8, 32)
    groups *= scale_NG
    groups -= lowest_NG


def _q5_k(blocks: Bytes, out: Floats) -> None:
    scale_NG, lowest_NG = _group_scales(blocks)
    integers = _nibbles(blocks[:, 48:], 32)
    high = np.ascontiguousarray(blocks[:, 16:48])
    for group in range(8):  # bit g of the 32 high bytes belongs to group g
        integers[:, 32 * group : 32 * group + 32] |= (high >> group & 1) << 4
    np.copyto(out, integers)
    groups = out.reshape(len(out), 8, 32)
    groups *= scale_NG
    groups -= lowest_NG


def _q6_k(blocks: Bytes, out: Floats) -> None:
    low, high = blocks[:, :128].reshape(-1, 2, 64), blocks[:, 128:192].reshape(-1, 2, 32)
    integers = np.empty((len(out), 2, 4, 32), np.uint8)  # each half of the block: four runs of 32
    np.bitwise_and(low.reshape(-1, 2, 2, 32), 15, out=integers[:, :, :2])
    np.right_shift(low.reshape(-1, 2, 2, 32), 4, out=integers[:, :, 2:])
    for run in range(4):  # bits 2r and 2r + 1 of the high bytes belong to run r
        integers[:, :, run] |= (high >> 2 * run & 3) << 4
    np.copyto(out, integers.reshape(len(out), -1))
    out -= 32
    scale_NG = _scale(blocks, 208) * blocks[:, 192:208].view(np.int8).astype(np.float32)
    groups = out.reshape(len(out), 16, 16)
    groups *= scale_NG[:, :, None]


BLOCKS = {
    0: Block("F32", 1, 4, _float32),
    1: Block("F16", 1, 2, _float16),
    30: Block("BF16", 1, 2, _bfloat16),
    2: Block("Q4_0", 32, 18, _q4_0),
    3: Block("Q4_1", 32, 20, _q4_1),
    6: Block("Q5_0", 32, 22, _q5_0),
    7: Block("Q5_1", 32, 24, _q5_1),
    8: Block("Q8_0", 32, 34, _q8_0),
    12: Block("Q4_K", 256, 144, _q4_k),
    13: Block("Q5_K", 256, 176, _q5_k),
    14: Block("Q6_K", 256, 210, _q6_k),
}
"""Every format that Ingot reads, by its number in the file."""
