"""A copy of the state in host memory, from which a checkpoint is written while training changes the original.

On a GPU the copies run on a stream of their own into pinned buffers, during the next step's passes; only the next *update*
waits for them, on the device (a hook of the optimizer). On a CPU they are plain copies, made before `take` returns. Buffers are
used again by the next checkpoint: pinning, and touching new pages, costs more than the copying.

Invariant: between `take` and the next update nothing changes what is copied (weights, optimizer state, persistent buffers).
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor


class HostCopy:
    """Copies of tensors by name; of a distributed tensor, this rank's shard."""

    def __init__(self) -> None:
        self._buffers: dict[str, Tensor] = {}
        self._stream: torch.cuda.Stream | None = None
        self._copied: torch.cuda.Event | None = None
        self._hooked: torch.optim.Optimizer | None = None

    @torch.no_grad()
    def take(self, tensors: Mapping[str, Tensor], optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
        """The buffers with the copies, valid after `wait`, until the next `take`."""
        local = {name: each.to_local() if isinstance(each, DTensor) else each for name, each in tensors.items()}
        self._buffers = {name: self._buffer(name, each) for name, each in local.items()}
        if not any(each.is_cuda for each in local.values()):
            for name, each in local.items():
                self._buffers[name].copy_(each)
            return self._buffers
        if self._stream is None:
            self._stream = torch.cuda.Stream()
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            for name, each in local.items():
                self._buffers[name].copy_(each, non_blocking=True)
            self._copied = self._stream.record_event()
        if self._hooked is not optimizer:
            optimizer.register_step_pre_hook(self._before_update)
            self._hooked = optimizer
        return self._buffers

    def wait(self) -> None:
        """Wait until the copies are complete."""
        if self._copied is not None:
            self._copied.synchronize()

    def _before_update(self, *_: object) -> None:
        if self._copied is not None:
            torch.cuda.current_stream().wait_event(self._copied)

    def _buffer(self, name: str, tensor: Tensor) -> Tensor:
        old = self._buffers.get(name)
        if old is not None and old.shape == tensor.shape and old.dtype == tensor.dtype:
            return old
        return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
