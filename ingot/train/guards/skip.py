"""Undoes the update of the routers' selection biases when a step is skipped.

The biases move with the loads of a step. The optimizer skips its own update (spikes.py); the biases are moved and then
restored, by a choice on the device.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from ingot.model.feed_forward.mixture import MixtureOfExperts


@contextmanager
def undone_if_skipped(model: nn.Module, taken: Tensor) -> Iterator[None]:
    """A context in which routers are updated; where `taken` is 0, all their state is as before afterwards."""
    routers = [module for module in model.modules() if isinstance(module, MixtureOfExperts)]
    buffers = [buffer for router in routers for buffer in router.buffers()]
    before = [buffer.clone() for buffer in buffers]
    yield
    with torch.no_grad():
        for buffer, old in zip(buffers, before, strict=True):
            buffer.copy_(torch.where(taken > 0, buffer, old))
