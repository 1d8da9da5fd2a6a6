"""Reads quantised Hugging Face weights (block float8, MXFP4) as plain ones, a chunk of rows at a time.

    fp8     X (float8) and X_scale_inv, a float32 scale per block of 128 × 128:        w[i, j] = x[i, j] · s[i // 128, j // 128]
            (DeepSeek-V3, arXiv 2412.19437, section 3.3)
    mxfp4   X_blocks and X_scales, 32 four-bit numbers (e2m1) that share a power of two:  w = e2m1[nibble] · 2^(scale − 127)
            (OCP Microscaling Formats 1.0; gpt-oss). Rows of blocks run along the input, the plain tensor is transposed.

GPTQ and AWQ are in packed_weights.py, bitsandbytes in bitsandbytes_weights.py.

`quantization_config` in config.json names the format. The values come out in the dtype that config.json names for the model
(bfloat16), as transformers gives them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ingot.checkpoints.bitsandbytes_weights import BitsAndBytes
from ingot.checkpoints.packed_weights import PackedWeights
from ingot.checkpoints.tensors import Entry, Tensors
from ingot.workspace.errors import ArtifactError, listed

SCALE, BLOCKS, SCALES = "_scale_inv", "_blocks", "_scales"
BIAS = 127  # of the exponent
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)


def dequantised(source: Tensors, quantisation: Mapping[str, Any], dtype: torch.dtype, place: str) -> Tensors:
    """The tensors with plain weights in place of the quantised ones."""
    method = quantisation.get("quant_method")
    if method == "fp8":
        block = quantisation.get("weight_block_size")
        if block is None or quantisation.get("activation_scheme", "dynamic") != "dynamic":
            raise ArtifactError(
                "float8 weights without weight_block_size, or with stored activation scales",
                place=place,
                fix="import the model's unquantised weights",
            )
        return BlockFloat8(source, (int(block[0]), int(block[1])), dtype)
    if method == "mxfp4":
        return Mxfp4(source, dtype)
    if method in ("gptq", "awq"):
        return PackedWeights(source, quantisation, dtype, place)
    if method == "bitsandbytes":
        return BitsAndBytes(source, dtype, place)
    raise ArtifactError(
        f"weights quantised by the method {method!r}; Ingot reads fp8 (in blocks), mxfp4, gptq, awq and bitsandbytes",
        place=place,
        fix="import the model's unquantised weights",
    )


class BlockFloat8(Tensors):
    """`X` times `X_scale_inv`; tensors without a scale are unchanged. The last blocks may be cut off by the edge."""

    def __init__(self, source: Tensors, block: tuple[int, int], dtype: torch.dtype) -> None:
        self.source, self.block = source, block
        self._scaled = {name.removesuffix(SCALE) for name in source.entries if name.endswith(SCALE)}
        missing = sorted(name for name in self._scaled if name not in source.entries)
        _refuse_orphans(missing, "no weight for the scales of")
        self.entries = {
            name: Entry(entry.shape, dtype) if name in self._scaled else entry
            for name, entry in source.entries.items()
            if not name.endswith(SCALE)
        }

    def rows(self, name: str, start: int, end: int) -> Tensor:
        values = self.source.rows(name, start, end)
        if name not in self._scaled:
            return values
        tall, wide = self.block
        first = start // tall
        scales = self.source.rows(name + SCALE, first, -(-end // tall)).float()
        scales = scales.repeat_interleave(tall, 0)[start - first * tall : end - first * tall]
        scales = scales.repeat_interleave(wide, 1)[:, : values.shape[1]]
        return (values.float() * scales).to(self.entries[name].dtype)


class Mxfp4(Tensors):
    """`X` [E, in, out] from `X_blocks` [E, out, in / 32, 16] and `X_scales` [E, out, in / 32]; others are unchanged."""

    def __init__(self, source: Tensors, dtype: torch.dtype) -> None:
        self.source = source
        self._packed = {name.removesuffix(BLOCKS) for name in source.entries if name.endswith(BLOCKS)}
        _refuse_orphans(
            sorted(n for n in self._packed if n + SCALES not in source.entries), "no scales for the blocks of"
        )
        parts = {name + end for name in self._packed for end in (BLOCKS, SCALES)}
        self.entries = {name: entry for name, entry in source.entries.items() if name not in parts}
        for name in self._packed:
            experts, out, groups, size = source.entries[name + BLOCKS].shape
            self.entries[name] = Entry((experts, groups * size * 2, out), dtype)

    def rows(self, name: str, start: int, end: int) -> Tensor:
        if name not in self._packed:
            return self.source.rows(name, start, end)
        blocks = self.source.rows(name + BLOCKS, start, end)
        exponents = self.source.rows(name + SCALES, start, end).int() - BIAS
        table = torch.tensor(E2M1, dtype=self.entries[name].dtype)
        nibbles = torch.stack((blocks & 15, blocks >> 4), dim=-1).flatten(-2)  # the low half comes first
        values = torch.ldexp(table[nibbles.int()], exponents[..., None])
        return values.flatten(-2).transpose(1, 2)


def _refuse_orphans(names: list[str], problem: str) -> None:
    if names:
        raise ArtifactError(f"{problem} {listed(names)}", fix="copy or download the model's folder again")
