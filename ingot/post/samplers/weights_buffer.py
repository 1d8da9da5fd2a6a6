"""Weights on their way from the learner to samplers: all tensors in one block of bytes.

`WeightsLayout` says where each lies in a block, wherever that is: in an object store (ray_transport.py), or in memory that all
processes of a machine see (`WeightsBuffer`). On a CPU it is shared memory, on a GPU a tensor that other processes open by CUDA
IPC; torch.multiprocessing hands over both. It has two slots: while samplers copy the newest weights out of one, the next are
written to the other, which all samplers have given up that have taken newer weights (local.py waits for that).

The weights are those of the plain model that computes the same (adapters merged), in the precision of sampling: the learner casts
what is sampled in float8, once for all samplers. They come one
after the other, because the learner may have no whole model: a divided one gathers a tensor at a time (train/parallel/apply.py).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ingot.inference.checksum import state_checksum
from ingot.inference.quantised.layers import QuantisedLinear
from ingot.inference.weights import empty_model
from ingot.model.config import ModelConfig
from ingot.workspace.errors import CheckFailed

ALIGNMENT = 256  # bytes, so that a view of any dtype begins at a multiple of its size
SLOTS = 2
TOGETHER = 1 << 28  # bytes that are copied at once


@dataclass(frozen=True)
class TensorLocation:
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
            model = empty_model(config, dtype)
        self.packed = {name: each for name, each in model.named_modules() if isinstance(each, QuantisedLinear)}
        self.places: dict[str, TensorLocation] = {}
        self.size = 0
        for name, tensor in model.state_dict().items():
            self.places[name] = TensorLocation(self.size, tuple(tensor.shape), tensor.dtype)
            self.size += -(-self.places[name].size // ALIGNMENT) * ALIGNMENT

    def views(self, block: Tensor) -> dict[str, Tensor]:
        """The tensors in a block of bytes."""
        return {
            name: block[place.start : place.start + place.size].view(place.dtype).view(place.shape)
            for name, place in self.places.items()
        }

    @torch.no_grad()
    def write(self, block: Tensor, weights: Iterable[tuple[str, Tensor]]) -> int:
        """Copy weights into a block; returns their checksum there, when the device has finished."""
        views = self.views(block)
        missing, waiting, size = set(views), list[tuple[Tensor, Tensor]](), 0
        for name, value in (part for given in weights for part in self._parts(*given)):
            missing.remove(name)
            waiting.append((views[name], value))
            size += self.places[name].size
            if size >= TOGETHER:
                _copy(waiting)
                waiting, size = [], 0
        _copy(waiting)
        if missing:
            raise CheckFailed(f"no new weights came for {min(missing)!r}", place="weights on their way to samplers")
        return state_checksum(views)

    def _parts(self, name: str, value: Tensor) -> Iterator[tuple[str, Tensor]]:
        """A tensor as samplers hold it: the weight of a float8 layer becomes values and scales."""
        layer = self.packed.get(name.removesuffix(".weight"))
        if layer is None or not name.endswith(".weight"):
            yield name, value
            return
        for part, tensor in layer.pack_parts(value).items():
            yield f"{name.removesuffix('.weight')}.{part}", tensor


def _copy(pairs: Sequence[tuple[Tensor, Tensor]]) -> None:
    """Small tensors take longer to launch than to copy: all of them at once."""
    if pairs:
        torch._foreach_copy_([there for there, _ in pairs], [value for _, value in pairs])


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

    def write(self, slot: int, weights: Iterable[tuple[str, Tensor]]) -> int:
        """Copy weights into a slot; returns their checksum there."""
        return self.layout.write(self.blocks[slot], weights)


class StoredWeights:
    """Blocks in Ray's object store, which all samplers of a machine map (ray_transport.py)."""

    def __init__(self, config: ModelConfig, dtype: torch.dtype) -> None:
        self.layout = WeightsLayout(config, dtype)
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")  # they are only read

    def read(self, reference: Any) -> dict[str, Tensor]:
        """Views of the tensors in the block that a reference is of."""
        import ray

        return self.layout.views(torch.from_numpy(ray.get(reference)))
