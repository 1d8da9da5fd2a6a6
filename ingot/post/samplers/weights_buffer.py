"""Weights on their way from the learner to samplers: all tensors in one block of bytes.

`WeightsLayout` says where each lies in a block, wherever that is: in an object store (ray_transport.py), or in memory that all
processes of a machine see (`WeightsBuffer`). On a CPU it is shared memory, on a GPU a tensor that other processes open by CUDA
IPC; torch.multiprocessing hands over both. It has two slots: while samplers copy the newest weights out of one, the next are
written to the other, which all samplers have given up that have taken newer weights (local.py waits for that).

The weights are those of the plain model that computes the same (adapters merged), in the precision of sampling.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ingot.inference.checksum import state_checksum
from ingot.model.config import ModelConfig
from ingot.model.transformer import Transformer

ALIGNMENT = 256  # bytes, so that a view of any dtype begins at a multiple of its size
SLOTS = 2


@dataclass(frozen=True)
class Place:
    """Where a tensor lies in a block."""

    start: int
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def size(self) -> int:
        """In bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


class WeightsLayout:
    """The places of the tensors of a model in a block of `size` bytes."""

    def __init__(self, config: ModelConfig, dtype: torch.dtype) -> None:
        with torch.device("meta"):
            model = Transformer(config).to(dtype)
        self.places: dict[str, Place] = {}
        self.size = 0
        for name, tensor in model.state_dict().items():
            self.places[name] = Place(self.size, tuple(tensor.shape), tensor.dtype)
            self.size += -(-self.places[name].size // ALIGNMENT) * ALIGNMENT

    def views(self, block: Tensor) -> dict[str, Tensor]:
        """The tensors in a block of bytes."""
        return {
            name: block[place.start : place.start + place.size].view(place.dtype).view(place.shape)
            for name, place in self.places.items()
        }

    @torch.no_grad()
    def write(self, block: Tensor, state: Mapping[str, Tensor]) -> int:
        """Copy weights into a block; returns their checksum there, when the device has finished."""
        views = self.views(block)
        torch._foreach_copy_(list(views.values()), [state[name] for name in views])
        return state_checksum(views)


class WeightsBuffer:
    """Blocks that several processes see; it can be sent to a process that is being spawned."""

    def __init__(self, config: ModelConfig, dtype: torch.dtype, device: torch.device) -> None:
        self.layout = WeightsLayout(config, dtype)
        self.blocks = torch.zeros(SLOTS, self.layout.size, dtype=torch.uint8, device=device)
        if device.type == "cpu":
            self.blocks.share_memory_()

    def read(self, slot: int) -> dict[str, Tensor]:
        """Views of the tensors in a slot."""
        return self.layout.views(self.blocks[slot])

    def write(self, slot: int, state: Mapping[str, Tensor]) -> int:
        """Copy weights into a slot; returns their checksum there."""
        return self.layout.write(self.blocks[slot], state)


class StoredWeights:
    """Blocks in Ray's object store, which all samplers of a machine map (ray_transport.py)."""

    def __init__(self, config: ModelConfig, dtype: torch.dtype) -> None:
        self.layout = WeightsLayout(config, dtype)
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")  # they are only read

    def read(self, reference: Any) -> dict[str, Tensor]:
        """Views of the tensors in the block that a reference is of."""
        import ray

        return self.layout.views(torch.from_numpy(ray.get(reference)))
