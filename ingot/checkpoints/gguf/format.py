"""Reads the GGUF container (versions 2 and 3, little-endian): metadata, and tensors that stay on disk until they are read.

    "GGUF"  version:u32  tensors:u64  entries:u64
    entry   = key:string  type:u32  value          string = length:u64 bytes      array = type:u32 length:u64 values
    tensor  = name:string  dimensions:u32  sizes:u64[dimensions]  kind:u32  offset:u64
    padding to general.alignment, then the tensors' bytes; an offset counts from there

The file lies in a memory map: opening reads the head only, and `blocks` is a view of the map.

Invariant: whatever the bytes are, `GgufFile` gives a file whose every tensor lies inside it, or raises ArtifactError. A
count is believed only if the bytes left could hold so many values, so that a damaged one costs neither time nor memory.
"""

from __future__ import annotations

import math
import mmap
import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ingot.checkpoints.gguf.quants import BLOCKS, Block, dequantise
from ingot.workspace.errors import ArtifactError

MAGIC, VERSIONS, ALIGNMENT = b"GGUF", (2, 3), 32
DIMENSIONS, NESTING = 4, 4
LENGTH = struct.Struct("<Q")
NUMBERS = {0: "u1", 1: "i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 10: "<u8", 11: "<i8", 12: "<f8"}
BOOLEAN, STRING, ARRAY = 7, 8, 9
SMALLEST = {**{kind: np.dtype(name).itemsize for kind, name in NUMBERS.items()}, BOOLEAN: 1, STRING: 8, ARRAY: 12}
FIX = "copy or download the file again"


class TensorInfo(NamedTuple):
    """A tensor of the file. `shape` has the order of torch: the last size is the one whose values lie side by side."""

    name: str
    shape: tuple[int, ...]
    block: Block
    start: int

    @property
    def run_bytes(self) -> int:
        """The bytes of one run along the last size."""
        return self.shape[-1] // self.block.values * self.block.size

    @property
    def runs(self) -> int:
        """How many such runs there are."""
        return math.prod(self.shape[:-1])


class GgufFile:
    """An open file: `metadata` by key, `tensors` by name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._map = _memory_map(path)
        cursor = _Cursor(self._map, path)
        if cursor.take(4, "the magic") != MAGIC:
            raise ArtifactError(
                "not a GGUF file: it does not begin with GGUF", place=str(path), fix="give a .gguf file"
            )
        self.version: int = cursor.number("<I", "the version")
        if self.version not in VERSIONS:
            endian = " (a big-endian file)" if self.version >> 16 and not self.version & 0xFFFF else ""
            raise ArtifactError(
                f"GGUF version {self.version}{endian}",
                place=str(path),
                fix="convert it with a llama.cpp of 2023 or later",
            )
        tensors = cursor.count(24, "tensors")
        entries = cursor.count(13, "metadata entries")
        self.metadata: dict[str, Any] = {}
        for _ in range(entries):
            key = cursor.string("a metadata key")
            if key in self.metadata:
                raise cursor.damaged(f"the key {key!r} comes twice")
            self.metadata[key] = cursor.value(cursor.number("<I", key), key)
        alignment = self.metadata.get("general.alignment", ALIGNMENT)
        if not isinstance(alignment, int) or alignment <= 0 or alignment & (alignment - 1):
            raise cursor.damaged(f"general.alignment is {alignment!r}, not a power of two")
        infos = [cursor.tensor() for _ in range(tensors)]
        begin = -(-cursor.position // alignment) * alignment
        self.tensors: dict[str, TensorInfo] = {}
        for info in infos:
            placed = info._replace(start=begin + info.start)
            end = placed.start + placed.runs * placed.run_bytes
            if info.name in self.tensors:
                raise cursor.damaged(f"the tensor {info.name!r} comes twice")
            if info.start % alignment or end > len(self._map):
                raise cursor.damaged(
                    f"the tensor {info.name!r} should lie at bytes {placed.start:,} to {end:,} of {len(self._map):,}"
                )
            self.tensors[info.name] = placed

    def blocks(self, name: str) -> NDArray[np.uint8]:
        """The tensor's bytes in the file, [runs, bytes of a run]: a read-only view, no copy."""
        info = self.tensors[name]
        view = np.frombuffer(self._map, np.uint8, info.runs * info.run_bytes, info.start)
        return view.reshape(info.runs, info.run_bytes)

    def read(self, name: str, rows: slice | NDArray[np.int64] = slice(None)) -> NDArray[np.float32]:
        """Some rows of the tensor (indices along its first axis), or all, in float32."""
        info = self.tensors[name]
        if len(info.shape) == 1:  # one run of blocks, which cannot be cut anywhere
            return dequantise(self.blocks(name), info.block)[0][rows]
        blocks = self.blocks(name).reshape(info.shape[0], -1)[rows]
        return dequantise(blocks.reshape(-1, info.run_bytes), info.block).reshape(-1, *info.shape[1:])


class _Cursor:
    """Reads the head of the file from front to back; every read is checked against the file's end."""

    def __init__(self, data: mmap.mmap, path: Path) -> None:
        self.data, self.path, self.position, self.end = data, path, 0, len(data)

    def damaged(self, problem: str) -> ArtifactError:
        return ArtifactError(f"damaged near byte {self.position:,}: {problem}", place=str(self.path), fix=FIX)

    def take(self, size: int, what: str) -> bytes:
        if size > self.end - self.position:
            raise self.damaged(f"{what} takes {size:,} bytes, {self.end - self.position:,} are left")
        self.position += size
        return self.data[self.position - size : self.position]

    def number(self, form: str, what: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form), what))[0]

    def count(self, smallest: int, what: str) -> int:
        """A number of things of at least `smallest` bytes each."""
        count: int = self.number("<Q", f"the number of {what}")
        if count * smallest > self.end - self.position:
            raise self.damaged(f"{count:,} {what} in {self.end - self.position:,} bytes")
        return count

    def string(self, what: str) -> str:
        return self.strings(1, what)[0]

    def strings(self, count: int, what: str) -> list[str]:
        """A vocabulary has 100,000 of them, so this loop calls nothing of ours."""
        found: list[str] = []
        data, position, end, length_of = self.data, self.position, self.end, LENGTH.unpack_from
        for _ in range(count):
            start = position + LENGTH.size
            position = start + length_of(data, position)[0] if start <= end else end + 1
            if position > end:
                raise self.damaged(f"{what} is a text that goes beyond the end of the file")
            try:
                found.append(str(data[start:position], "utf-8"))
            except UnicodeDecodeError as error:
                raise self.damaged(f"{what} is not UTF-8") from error
        self.position = position
        return found

    def value(self, kind: int, key: str, depth: int = 0) -> Any:
        if kind in NUMBERS:
            return self.numbers(kind, 1, key)[0]
        if kind == BOOLEAN:
            return self.booleans(1, key)[0]
        if kind == STRING:
            return self.string(key)
        if kind == ARRAY:
            inner = self.number("<I", key)
            if inner not in SMALLEST or (inner == ARRAY and depth == NESTING):
                raise self.damaged(f"{key} is an array of values of type {inner}, {depth} arrays deep")
            length = self.count(SMALLEST[inner], f"values of {key}")
            if inner in NUMBERS:
                return self.numbers(inner, length, key)
            if inner == BOOLEAN:
                return self.booleans(length, key)
            if inner == STRING:
                return self.strings(length, key)
            return [self.value(inner, key, depth + 1) for _ in range(length)]
        raise self.damaged(f"{key} has the unknown value type {kind}")

    def numbers(self, kind: int, count: int, key: str) -> list[Any]:
        dtype = np.dtype(NUMBERS[kind])
        return np.frombuffer(self.take(count * dtype.itemsize, key), dtype).tolist()

    def booleans(self, count: int, key: str) -> list[bool]:
        data = self.take(count, key)
        if data.strip(b"\0\1"):
            raise self.damaged(f"{key} is a truth value that is neither 0 nor 1")
        return [byte == 1 for byte in data]

    def tensor(self) -> TensorInfo:
        """One tensor's description; `start` still counts from where the tensors begin."""
        name = self.string("a tensor's name")
        dimensions = self.number("<I", f"the dimensions of {name}")
        if not 1 <= dimensions <= DIMENSIONS:
            raise self.damaged(f"the tensor {name!r} has {dimensions} dimensions")
        sizes = struct.unpack(f"<{dimensions}Q", self.take(8 * dimensions, f"the sizes of {name}"))
        kind, start = self.number("<I", f"the type of {name}"), self.number("<Q", f"the offset of {name}")
        block = BLOCKS.get(kind)
        if block is None:
            known = ", ".join(block.name for block in BLOCKS.values())
            raise ArtifactError(
                f"the tensor {name!r} has the type {kind}, which Ingot does not read",
                place=str(self.path),
                fix=f"use a file with the types {known}",
            )
        if 0 in sizes or sizes[0] % block.values:
            raise self.damaged(f"the tensor {name!r} has the sizes {sizes}, but {block.name} comes in {block.values}s")
        return TensorInfo(name, tuple(reversed(sizes)), block, start)


def _memory_map(path: Path) -> mmap.mmap:
    try:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # ValueError: an empty file
        raise ArtifactError(f"not readable: {error}", place=str(path), fix="give a .gguf file") from error
