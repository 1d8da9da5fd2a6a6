"""Named tensors that are read in chunks of rows, from memory or from any file.

A row is one index of a tensor's first axis: a row of a matrix, or one expert of a stacked weight [E, …]. Everything that
reads or writes whole models goes through `Tensors.rows`, in chunks of at most `CHUNK` bytes, so that a model far larger than
the memory can be converted.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

CHUNK = 8_000_000  # bytes that are read together, where a row is not longer than that


@dataclass(frozen=True)
class Entry:
    """Shape and dtype of a tensor, known without reading it. A single number counts as one row."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return self.shape[0] if self.shape else 1

    @property
    def row(self) -> int:
        """The values of one row."""
        return math.prod(self.shape[1:])

    @property
    def bytes(self) -> int:
        """The size of the whole tensor."""
        return self.rows * self.row * self.dtype.itemsize

    def part(self, start: int, end: int) -> tuple[int, ...]:
        """The shape of rows `start` to `end`."""
        return (end - start, *self.shape[1:]) if self.shape else ()


class Tensors(ABC):
    """Named tensors that are read only when they are asked for."""

    entries: Mapping[str, Entry]

    @abstractmethod
    def rows(self, name: str, start: int, end: int) -> Tensor:
        """Rows `start` to `end` of a tensor, on the CPU."""

    def ranges(self, name: str) -> Iterator[tuple[int, int]]:
        """The ranges of rows in which a tensor is read, each of at most CHUNK bytes if a row is not more."""
        entry = self.entries[name]
        step = max(1, CHUNK // max(1, entry.row * entry.dtype.itemsize))
        yield from ((start, min(start + step, entry.rows)) for start in range(0, entry.rows, step))

    def chunks(self, name: str) -> Iterator[tuple[int, int, Tensor]]:
        """The tensor, chunk after chunk: start, end, values."""
        for start, end in self.ranges(name):
            yield start, end, self.rows(name, start, end)

    @property
    def bytes(self) -> int:
        """The size of all tensors."""
        return sum(entry.bytes for entry in self.entries.values())


class MemoryTensors(Tensors):
    """The tensors of a state dict."""

    def __init__(self, state: Mapping[str, Tensor]) -> None:
        self.state = state
        self.entries = {name: Entry(tuple(tensor.shape), tensor.dtype) for name, tensor in state.items()}

    def rows(self, name: str, start: int, end: int) -> Tensor:
        tensor = self.state[name].detach()
        return (tensor[start:end] if tensor.dim() else tensor).cpu()


class CastTensors(Tensors):
    """Tensors of which some (`names`) have another dtype."""

    def __init__(self, source: Tensors, names: Collection[str], dtype: torch.dtype) -> None:
        self.source = source
        self.entries = {
            name: Entry(entry.shape, dtype if name in names else entry.dtype) for name, entry in source.entries.items()
        }

    def ranges(self, name: str) -> Iterator[tuple[int, int]]:
        return self.source.ranges(name)

    def rows(self, name: str, start: int, end: int) -> Tensor:
        return self.source.rows(name, start, end).to(self.entries[name].dtype)


def fill(state: Mapping[str, Tensor], source: Tensors) -> None:
    """Copy tensors of the same names and shapes into those of `state`, which may have another dtype or device."""
    with torch.no_grad():
        for name, tensor in state.items():
            for start, end, values in source.chunks(name):
                (tensor[start:end] if tensor.dim() else tensor).copy_(values)
