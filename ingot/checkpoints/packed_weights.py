"""Reads weights that GPTQ and AWQ have packed into int32, as plain ones.

    w[o, i] = s[g, o] · (q[i, o] − z[g, o])                   g = g_idx[i], or i // group_size
    GPTQ (arXiv 2210.17323)   qweight [in / n, out]: n integers of one column, low bits first. qzeros [groups, out / n]: n zeros
                              of one row; from the whole word 1 is subtracted in each of its places, but for gptq_v2
    AWQ  (arXiv 2306.00978)   qweight [in, out / 8]: 8 integers of one row, in the order 0 2 4 6 1 3 5 7, like qzeros

n = 32 / bits. The products are in the dtype of the scales, as the packages compute them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ingot.checkpoints.tensors import Entry, Tensors
from ingot.workspace.errors import ArtifactError

PARTS = ("qweight", "qzeros", "scales", "g_idx")
AWQ_PLACES = (0, 4, 1, 5, 2, 6, 3, 7)
"""Which of the packed integers of a word is the i-th."""


class PackedWeights(Tensors):
    """`X.weight` [out, in] from `X.qweight`, `X.qzeros`, `X.scales` and perhaps `X.g_idx`; other tensors are unchanged."""

    def __init__(self, source: Tensors, quantisation: Mapping[str, Any], dtype: torch.dtype, place: str) -> None:
        self.source, self.awq = source, quantisation["quant_method"] == "awq"
        self.bits, self.group = int(quantisation.get("bits", 4)), int(quantisation.get("group_size", -1))
        _check(quantisation, place)
        less_one = not self.awq and quantisation.get("checkpoint_format") != "gptq_v2"
        self.offset = sum(1 << self.bits * place for place in range(32 // self.bits)) if less_one else 0
        stems = [name.removesuffix(".qweight") for name in source.entries if name.endswith(".qweight")]
        packed = {f"{stem}.{part}" for stem in stems for part in PARTS}
        self.entries = {name: entry for name, entry in source.entries.items() if name not in packed}
        for stem in stems:
            missing = [part for part in PARTS[:3] if f"{stem}.{part}" not in source.entries]
            if missing:
                problem = f"{stem} has no {', '.join(missing)}"
                raise ArtifactError(problem, place=place, fix="copy or download the model's folder again")
            rows, columns = source.entries[f"{stem}.qweight"].shape
            share = 32 // self.bits
            shape = (columns * share, rows) if self.awq else (columns, rows * share)
            self.entries[f"{stem}.weight"] = Entry(shape, dtype)
        self._stems, self._last = frozenset(stems), ("", torch.empty(0))

    def rows(self, name: str, start: int, end: int) -> Tensor:
        stem = name.removesuffix(".weight")
        if name == stem or stem not in self._stems:
            return self.source.rows(name, start, end)
        if self._last[0] != name:  # packed words run across rows, so a matrix is unpacked once and kept until the next
            self._last = (name, self._plain(stem, self.entries[name]))
        return self._last[1][start:end]

    def _plain(self, stem: str, entry: Entry) -> Tensor:
        """The whole matrix."""
        words, zeros, scales_GO = (self._whole(f"{stem}.{part}") for part in PARTS[:3])
        zeros_GO = self._unpacked(zeros + self.offset, 1)
        integers_IO = self._unpacked(words, 1 if self.awq else 0)
        if f"{stem}.g_idx" in self.source.entries:
            group_I = self._whole(f"{stem}.g_idx").long()
        else:
            group_I = torch.arange(entry.shape[1]) // (self.group if self.group > 0 else entry.shape[1])
        values_IO = scales_GO[group_I] * (integers_IO - zeros_GO[group_I])
        return values_IO.T.to(entry.dtype).contiguous()

    def _unpacked(self, words: Tensor, axis: int) -> Tensor:
        """The integers of int32 words, which follow each other along an axis."""
        places = torch.tensor(AWQ_PLACES) if self.awq else torch.arange(32 // self.bits)
        shape = [1, 1, 1]
        shape[axis + 1] = len(places)
        found = words.unsqueeze(axis + 1) >> (places * self.bits).int().reshape(shape) & ((1 << self.bits) - 1)
        return found.flatten(axis, axis + 1)

    def _whole(self, name: str) -> Tensor:
        return self.source.rows(name, 0, self.source.entries[name].rows)


def _check(quantisation: Mapping[str, Any], place: str) -> None:
    """Refuse the layouts that are not these."""
    method, bits = quantisation["quant_method"], quantisation.get("bits", 4)
    layout = quantisation.get("version", "gemm") if method == "awq" else quantisation.get("checkpoint_format", "gptq")
    known = {"awq": ((4,), ("gemm",)), "gptq": ((2, 4, 8), ("gptq", "gptq_v2"))}[method]
    if bits not in known[0] or str(layout).lower() not in known[1]:
        raise ArtifactError(
            f"{method} weights of {bits} bits in the layout {layout}; read are "
            f"{', '.join(map(str, known[0]))} bits in {' and '.join(known[1])}",
            place=place,
            fix="import the model's unquantised weights",
        )
