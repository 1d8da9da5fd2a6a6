"""Reads weights that bitsandbytes has quantised (NF4, FP4, int8), as plain ones.

    4 bits   w = map[nibble] · a, the high nibble first; a block of 64 values shares a         (QLoRA, arXiv 2305.14314)
             a = nested_map[byte] · b + offset where the scales are quantised themselves, a block of 256 shares b
    8 bits   w = q · SCB / 127, one SCB a row                                                  (LLM.int8(), arXiv 2208.07339)

The tensors of a 4-bit weight X are X (bytes), X.absmax, X.quant_map, X.nested_absmax, X.nested_quant_map and
X.quant_state.bitsandbytes__nf4, which is JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ingot.checkpoints.tensors import Entry, Tensors
from ingot.workspace.errors import ArtifactError

STATE = ".quant_state.bitsandbytes__"
PARTS = (".absmax", ".quant_map", ".nested_absmax", ".nested_quant_map", f"{STATE}nf4", f"{STATE}fp4")
SCALE, LAYOUT = "SCB", "weight_format"
ONE_127TH = 7.874015718698502e-3


class BitsAndBytes(Tensors):
    """Plain weights in place of those with a quantisation state beside them; other tensors are unchanged."""

    def __init__(self, source: Tensors, dtype: torch.dtype, place: str) -> None:
        self.source, self.place = source, place
        self._states = {name.split(STATE)[0]: name for name in source.entries if STATE in name}
        self._scales = {
            name.removesuffix(SCALE) + "weight": name for name in source.entries if name.endswith(f".{SCALE}")
        }
        extra = {name + part for name in self._states for part in PARTS} | set(self._scales.values())
        extra |= {name.removesuffix("weight") + LAYOUT for name in self._scales}
        self.entries = {name: entry for name, entry in source.entries.items() if name not in extra}
        for name in self._states:
            self.entries[name] = Entry(tuple(self._state(name)["shape"]), dtype)
        for name in self._scales:
            self.entries[name] = Entry(source.entries[name].shape, dtype)
        self._last = ("", torch.empty(0))

    def rows(self, name: str, start: int, end: int) -> Tensor:
        if name in self._scales:
            scale = self.source.rows(self._scales[name], start, end)[:, None]
            return (self.source.rows(name, start, end) * scale * ONE_127TH).to(self.entries[name].dtype)
        if name not in self._states:
            return self.source.rows(name, start, end)
        if self._last[0] != name:  # blocks run across rows, so a matrix is unpacked once and kept until the next
            self._last = (name, self._plain(name))
        return self._last[1][start:end]

    def _plain(self, name: str) -> Tensor:
        """The whole matrix, of 4-bit values."""
        state, scales = self._state(name), self._whole(f"{name}.absmax")
        if "nested_blocksize" in state:
            table, outer = self._whole(f"{name}.nested_quant_map"), self._whole(f"{name}.nested_absmax")
            outer = outer.repeat_interleave(state["nested_blocksize"])[: len(scales)]
            scales = table[scales.long()] * outer + state["nested_offset"]
        packed = self._whole(name).flatten()
        nibbles = torch.stack((packed >> 4, packed & 15), dim=-1).flatten()
        entry = self.entries[name]
        values = self._whole(f"{name}.quant_map")[nibbles.long()][: entry.rows * entry.row]
        scaled = values * scales.repeat_interleave(state["blocksize"])[: len(values)]
        return scaled.reshape(entry.shape).to(entry.dtype)

    def _state(self, name: str) -> Mapping[str, Any]:
        stored = self._states[name]
        try:
            state = json.loads(bytes(self._whole(stored).tolist()))
            return {**state, "shape": [int(size) for size in state["shape"]], "blocksize": int(state["blocksize"])}
        except (ValueError, KeyError, TypeError) as error:
            fix = "copy or download the model's folder again"
            raise ArtifactError(f"{stored} is damaged: {error}", place=self.place, fix=fix) from error

    def _whole(self, name: str) -> Tensor:
        if name not in self.source.entries:
            raise ArtifactError(f"{name} is missing", place=self.place, fix="copy or download the model's folder again")
        return self.source.rows(name, 0, self.source.entries[name].rows)
