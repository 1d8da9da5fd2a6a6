"""A sampler as an actor of a Ray cluster: `serve` samples in one thread of it, `exchange` carries messages in another.

The learner makes one `exchange` after the other (ray_transport.py): it brings what the learner has to say, and takes back what
the sampler has said, for which it waits a little. So messages keep their order, and travel at the pace of the sampler's beats.

This file imports nothing heavy: the first exchange, which says that a node has taken the actor, does not wait for torch.
"""

from __future__ import annotations

import tempfile
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from ingot.post.samplers.messages import Command, Event, Failed, NewWeights
from ingot.workspace.errors import IngotError

if TYPE_CHECKING:
    from ingot.post.samplers.shipment import Shipment
    from ingot.post.samplers.worker import SamplerConfig

EXCHANGE_SECONDS = 0.5  # that the learner's messages wait at most for a sampler that says nothing

Item = TypeVar("Item")


class Mail(Generic[Item]):
    """Messages from one thread to another. New weights take the place of older ones that nobody has read."""

    def __init__(self) -> None:
        self._items: deque[Item] = deque()
        self._filled = threading.Condition()

    def put(self, item: Item) -> None:
        """Add a message."""
        with self._filled:
            older = [place for place, each in enumerate(self._items) if isinstance(each, NewWeights)]
            if isinstance(item, NewWeights) and older:
                self._items[older[0]] = item  # in their place: jobs behind them must not begin without weights
            else:
                self._items.append(item)
            self._filled.notify()

    def wait(self, seconds: float) -> bool:
        """Wait at most `seconds` for a message; return whether there is one."""
        with self._filled:
            return self._filled.wait_for(lambda: bool(self._items), seconds)

    def take(self) -> Item:
        """The next message."""
        with self._filled:
            return self._items.popleft()

    def take_all(self) -> list[Item]:
        """All messages."""
        with self._filled:
            items = list(self._items)
            self._items.clear()
            return items


class MailPipe:
    """The sampler's end of the connection (worker.Pipe)."""

    def __init__(self, inbox: Mail[Command], outbox: Mail[Event]) -> None:
        self.poll, self.recv, self.send = inbox.wait, inbox.take, outbox.put


class RaySampler:
    """The actor."""

    def __init__(self) -> None:
        self.inbox: Mail[Command] = Mail()
        self.outbox: Mail[Event] = Mail()

    def serve(self, config: SamplerConfig, shipment: Shipment) -> None:
        """Sample, until the learner says that it is enough, or something fails."""
        from ingot.post.samplers.weights_buffer import StoredWeights
        from ingot.post.samplers.worker import run_sampler

        with tempfile.TemporaryDirectory(prefix="ingot-sampler-") as folder:
            try:
                (tasks, *others), tools = shipment.unpack(Path(folder))
            except IngotError as error:
                self.outbox.put(Failed(str(error)))
                return
            weights = StoredWeights(config.model, config.dtype)
            listed = None if config.listed is None else replace(config.listed, tasks=others[0])
            here = replace(config, tasks=tasks, tools=tools, listed=listed)
            run_sampler(MailPipe(self.inbox, self.outbox), here, weights)

    def exchange(self, commands: Sequence[Command]) -> list[Event]:
        """Hand over what the learner says; what the sampler has said since the last time."""
        for each in commands:
            self.inbox.put(each)
        self.outbox.wait(EXCHANGE_SECONDS)
        return self.outbox.take_all()
