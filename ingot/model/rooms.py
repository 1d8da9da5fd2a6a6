"""Memory for what the training loops of the CPU compute, kept from step to step.

Every step makes tensors of the same sizes again. torch's allocator gives memory back to the system milliseconds after it became
free, and the system then has to fill every page of it with zeros: 25,000 pages in a step of a model of 10M parameters, a
twentieth of its time. Inside `kept_rooms` memory that is free again waits for the next tensor of about its size instead.

A room is a numpy array; a tensor on it holds a reference to the array until nobody, autograd included, holds its storage. So a
room is free when the references to its array are the list's own. Invariant: no two living storages share a room. Sizes are
rounded up by at most an eighth, and free rooms are given up when there is more than twice as much as was ever in use at once:
rows of ever different lengths, as post-training has them, take no more than that.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import prod
from threading import Lock
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

FREE = 2  # references to an array that only its list holds: the list's, and that of the call which counts them
SPARE = 2  # times as much as was ever in use

_lock = Lock()


class Rooms:
    """The rooms of a run."""

    def __init__(self) -> None:
        self.by_size: defaultdict[int, list[Any]] = defaultdict(list)  # numpy's arrays by their number of floats
        self.floats = 0  # of all of them
        self.most = 0  # floats that were ever in use at once

    def take(self, size: int) -> Any:
        """A free array of so many floats, or a new one."""
        alike = self.by_size[size]
        for place in range(len(alike)):
            if sys.getrefcount(alike[place]) == FREE:
                return alike[place]
        self._make_way(size)
        alike.append(torch.empty(size, dtype=torch.float32).numpy())
        self.floats += size
        return alike[-1]

    def _make_way(self, size: int) -> None:
        """Give free rooms up, if with a new one of this size there are too many."""
        used = {
            each: [rooms[place] for place in range(len(rooms)) if sys.getrefcount(rooms[place]) > FREE]
            for each, rooms in self.by_size.items()
        }
        in_use = sum(each * len(rooms) for each, rooms in used.items())
        self.most = max(self.most, in_use + size)
        if self.floats + size > SPARE * self.most:
            for each, rooms in used.items():
                self.by_size[each][:] = rooms
            self.floats = in_use


_kept: list[Rooms] = []  # the last are those in use


@contextmanager
def kept_rooms() -> Iterator[None]:
    """While inside, memory that `new_room` hands out is kept; afterwards it goes when its tensors do."""
    _kept.append(Rooms())
    try:
        yield
    finally:
        _kept.pop()


def rooms_are_kept() -> bool:
    """Whether somebody keeps them: a training run on a CPU. Not while operators are watched, as by who keeps what products
    made: he must see torch's own."""
    return bool(_kept) and not is_in_torch_dispatch_mode()


def empty(like: Tensor, shape: Sequence[int], dtype: torch.dtype | None = None) -> Tensor:
    """An uninitialised tensor where `like` is, in a room if it is for one."""
    if like.device.type == "cpu" and (dtype or like.dtype) == torch.float32:
        return new_room(*shape)
    return like.new_empty(shape, dtype=dtype)


def new_room(*shape: int) -> Tensor:
    """An uninitialised float32 tensor on the CPU."""
    if not rooms_are_kept():
        return torch.empty(shape, dtype=torch.float32)
    count = prod(shape)
    with _lock:
        return torch.from_numpy(_kept[-1].take(rounded_up(count))[:count].reshape(shape))


def rounded_up(count: int) -> int:
    """The size of the room for so many numbers: eight sizes between two powers of two, so that shapes share rooms."""
    step = 1 << max(0, count.bit_length() - 4)
    return max(1, -(-count // step) * step)
