"""How a learner reaches its samplers: processes of this machine (local.py), actors of a Ray cluster (ray_transport.py), others.

Samplers are numbered from 0. A sampler that dies is `Lost`, and the transport starts another one under its number, with the
newest weights; what it was playing is the dispatcher's to ask for again (dispatcher.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

from torch import Tensor

from ingot.post.samplers.messages import Cancel, Event, Job


class Transport(ABC):
    """Samplers, weights to them, jobs to each, and what they say."""

    count: int

    def make_room(self) -> None:  # noqa: B027 - most have room
        """Wait until the next weights can be written: samplers may still read those before them. `send_weights` does it, too;
        called before, it lets no other process wait in the middle of gathering them."""

    @abstractmethod
    def send_weights(self, weights: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Let all samplers go on with these weights, which come tensor by tensor; they are copied before this returns."""

    @abstractmethod
    def send(self, sampler: int, message: Job | Cancel) -> None:
        """Ask a sampler for a group, or let it give one up."""

    @abstractmethod
    def receive(self, seconds: float) -> list[tuple[int, Event]]:
        """Return (sampler, event) pairs since the last call; wait at most `seconds` for the first."""

    @abstractmethod
    def close(self) -> None:
        """End the samplers."""
