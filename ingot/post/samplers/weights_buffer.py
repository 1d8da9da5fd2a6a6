"""Weights on their way from the learner to samplers: one block of memory that all of their processes see.

On a CPU it is shared memory, on a GPU a tensor that other processes open by CUDA IPC; torch.multiprocessing hands over both. It
has two slots: while samplers copy the newest weights out of one, the learner writes the next into the other. The one that it
writes to was given up by every sampler that has taken newer weights (local.py waits for that).

The weights are those of the plain model that computes the same (adapters merged), in the precision of sampling.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ingot.inference.checksum import state_checksum
from ingot.model.config import ModelConfig
from ingot.model.transformer import Transformer

ALIGNMENT = 256  # bytes, so that a view of any dtype begins at a multiple of its size
SLOTS = 2


@dataclass(frozen=True)
class Place:
    """Where a tensor lies in a slot."""

    start: int
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def size(self) -> int:
        """In bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


class WeightsBuffer:
    """The block and the places of its tensors; it can be sent to a process that is being spawned."""

    def __init__(self, places: Mapping[str, Place], device: torch.device) -> None:
        self.places = dict(places)
        size = max((place.start + place.size for place in places.values()), default=0)
        self.block = torch.zeros(SLOTS, -(-size // ALIGNMENT) * ALIGNMENT, dtype=torch.uint8, device=device)
        if device.type == "cpu":
            self.block.share_memory_()

    @classmethod
    def of(cls, config: ModelConfig, dtype: torch.dtype, device: torch.device) -> WeightsBuffer:
        """For models of this configuration."""
        with torch.device("meta"):
            model = Transformer(config).to(dtype)
        places, start = {}, 0
        for name, tensor in model.state_dict().items():
            places[name] = Place(start, tuple(tensor.shape), tensor.dtype)
            start += -(-places[name].size // ALIGNMENT) * ALIGNMENT
        return cls(places, device)

    def read(self, slot: int) -> dict[str, Tensor]:
        """Views of the tensors in a slot."""
        row = self.block[slot]
        return {
            name: row[place.start : place.start + place.size].view(place.dtype).view(place.shape)
            for name, place in self.places.items()
        }

    @torch.no_grad()
    def write(self, slot: int, state: Mapping[str, Tensor]) -> int:
        """Copy weights into a slot; returns their checksum there, when the device has finished."""
        views = self.read(slot)
        for name, view in views.items():
            view.copy_(state[name])
        return state_checksum(views)
