"""Writes the GGUF container (version 3, little-endian): the head at once, then the tensors a chunk at a time.

The counterpart of format.py, which has the layout of the bytes. Whole numbers are written as uint32 (as int32 in arrays, as
llama.cpp's own converter does for types of tokens), decimal ones as float32.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ingot.checkpoints.gguf.format import ALIGNMENT, ARRAY, BOOLEAN, MAGIC, STRING, VERSIONS
from ingot.checkpoints.gguf.quantise import Bytes
from ingot.checkpoints.gguf.quants import BLOCKS

UINT32, INT32, FLOAT32 = 4, 5, 6


class Planned(NamedTuple):
    """A tensor to write: its shape in the order of torch, and the number of its format."""

    shape: tuple[int, ...]
    kind: int

    @property
    def bytes(self) -> int:
        """Its size in the file."""
        block = BLOCKS[self.kind]
        return math.prod(self.shape) // block.values * block.size


def write_container(
    path: Path,
    metadata: Mapping[str, Any],
    tensors: Mapping[str, Planned],
    chunks: Iterable[tuple[str, Iterable[Bytes]]],
) -> Iterator[int]:
    """Write a file, yielding the size of each chunk. `chunks` are the bytes of every tensor, in the order of `tensors`."""
    head = bytearray(MAGIC + struct.pack("<IQQ", max(VERSIONS), len(tensors), len(metadata)))
    for key, value in metadata.items():
        head += _string(key) + _value(value)
    start = 0
    for name, tensor in tensors.items():
        sizes = tensor.shape[::-1]
        head += _string(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, tensor.kind, start)
        start += _aligned(tensor.bytes)
    head += b"\0" * (-len(head) % ALIGNMENT)
    with path.open("wb") as file:
        file.write(head)
        for name, parts in chunks:
            written = 0
            for part in parts:
                written += file.write(part.data)
                yield part.nbytes
            assert written == tensors[name].bytes, name
            file.write(b"\0" * (_aligned(written) - written))


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _string(text: str) -> bytes:
    data = text.encode("utf-8")
    return struct.pack("<Q", len(data)) + data


def _value(value: Any) -> bytes:
    """A value with its type."""
    if isinstance(value, list):
        kind, data = _array(value)
        return struct.pack("<IIQ", ARRAY, kind, len(value)) + data
    if isinstance(value, bool):
        return struct.pack("<I?", BOOLEAN, value)
    if isinstance(value, int):
        return struct.pack("<II", UINT32, value)
    if isinstance(value, float):
        return struct.pack("<If", FLOAT32, value)
    return struct.pack("<I", STRING) + _string(value)


def _array(values: Sequence[Any]) -> tuple[int, bytes]:
    """The type of a list's values, and the values. The one list that may be empty is that of merges."""
    if not values or isinstance(values[0], str):
        return STRING, b"".join(map(_string, values))
    if isinstance(values[0], float):
        return FLOAT32, struct.pack(f"<{len(values)}f", *values)
    return INT32, struct.pack(f"<{len(values)}i", *values)
