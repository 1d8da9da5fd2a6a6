"""Reads and writes safetensors files, a chunk of rows at a time.

    length:u64   header: JSON {name: {dtype, shape, data_offsets: [begin, end]}}, padded with blanks   the tensors' bytes

The safetensors library maps a whole file into memory to read it and takes whole tensors to write it; here the file is read
with ordinary reads and written chunk by chunk, so that the memory needed is that of one chunk. The bytes are the same.

Invariant: whatever the bytes are, `SafetensorsFile` gives a file whose every tensor lies inside it, or raises ArtifactError.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ingot.checkpoints.tensors import Entry, Tensors
from ingot.workspace.errors import ArtifactError

DTYPES = {
    "I64": torch.int64, "F64": torch.float64, "F32": torch.float32, "I32": torch.int32, "BF16": torch.bfloat16,
    "F16": torch.float16, "I16": torch.int16, "F8_E8M0": torch.float8_e8m0fnu, "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip
"""In the order in which a file has them: wide items first, so that each tensor begins at a multiple of its item size."""
NAMES = {dtype: name for name, dtype in DTYPES.items()}
LONGEST_HEADER = 100_000_000  # the library's own limit
FIX = "copy or download the file again"


class SafetensorsFile(Tensors):
    """The tensors of one file; only its header is held."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            size = path.stat().st_size
            with path.open("rb") as file:
                length = int.from_bytes(file.read(8), "little")
                if not 2 <= length <= min(LONGEST_HEADER, size - 8):
                    raise self._damaged(f"a header of {length:,} bytes in a file of {size:,}")
                header = json.loads(file.read(length))
        except FileNotFoundError as error:
            raise ArtifactError("a weight file is missing", place=str(path), fix=FIX) from error
        except (OSError, ValueError) as error:  # ValueError: also bytes that are no UTF-8
            raise self._damaged(f"the header is not JSON: {error}") from error
        if not isinstance(header, dict):
            raise self._damaged("the header is not an object")
        header.pop("__metadata__", None)
        self.entries, self._begins = {}, dict[str, int]()
        for name, value in header.items():
            self.entries[name], begin, end = self._entry(name, value)
            self._begins[name] = 8 + length + begin
            if end - begin != self.entries[name].bytes or 8 + length + end > size:
                raise self._damaged(f"{name} should lie at bytes {begin:,} to {end:,} of {size - 8 - length:,}")

    def rows(self, name: str, start: int, end: int) -> Tensor:
        entry = self.entries[name]
        width = entry.row * entry.dtype.itemsize
        out = torch.empty((end - start) * width, dtype=torch.uint8)
        with self.path.open("rb") as file:
            file.seek(self._begins[name] + start * width)
            if file.readinto(out.numpy().data) != len(out):
                raise self._damaged(f"the file ends inside {name}")
        return out.view(entry.dtype).reshape(entry.part(start, end))

    def _entry(self, name: str, value: Any) -> tuple[Entry, int, int]:
        try:
            dtype, shape, (begin, end) = value["dtype"], tuple(map(int, value["shape"])), value["data_offsets"]
            lengths = [int(begin), int(end), *shape]
        except (KeyError, TypeError, ValueError) as error:
            raise self._damaged(f"{name} is not described as a tensor") from error
        if dtype not in DTYPES:
            raise ArtifactError(
                f"{name} has the dtype {dtype}", place=str(self.path), fix=f"known dtypes are {', '.join(DTYPES)}"
            )
        if min(lengths) < 0:
            raise self._damaged(f"{name} has a negative size")
        return Entry(shape, DTYPES[dtype]), begin, end

    def _damaged(self, problem: str) -> ArtifactError:
        return ArtifactError(f"not readable as safetensors: {problem}", place=str(self.path), fix=FIX)


def write_safetensors(path: Path, names: Sequence[str], source: Tensors) -> Iterator[int]:
    """Write these tensors to a file, yielding the size of each chunk; a chunk is read just before it is written."""
    entries = {name: source.entries[name] for name in names}
    order = list(NAMES)
    ordered = sorted(names, key=lambda name: (order.index(entries[name].dtype), name))
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name in ordered:
        begin, end = end, end + entries[name].bytes
        shape = list(entries[name].shape)
        header[name] = {"dtype": NAMES[entries[name].dtype], "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in ordered:
            for _, _, values in source.chunks(name):
                data = values.contiguous().reshape(-1).view(torch.uint8).numpy()
                file.write(data.data)
                yield len(data)


def shard(entries: Mapping[str, Entry], largest: int) -> list[list[str]]:
    """Names in their order, split so that a shard has at most `largest` bytes (or holds one tensor that is larger)."""
    shards: list[list[str]] = [[]]
    filled = 0
    for name, entry in entries.items():
        if shards[-1] and filled + entry.bytes > largest:
            shards.append([])
            filled = 0
        shards[-1].append(name)
        filled += entry.bytes
    return shards
