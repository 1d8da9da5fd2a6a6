"""What all transports do with their samplers: start them, hear them, and start another one where one is gone or silent.

A sampler that ends, or that was silent for `silence` seconds (it beats ten times a second), is killed, and another one is started
under its number, with the newest weights. One that ends several times in a row without a finished group is an error, as is one
that says why it cannot go on. A thread for each sampler takes in what it says, so that none waits for a learner that is training.

A transport fills in what a sampler runs in (`Worker`), how one is started, and where weights are put.
"""

from __future__ import annotations

import queue
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import suppress
from typing import TypeAlias

from torch import Tensor

from ingot.post.samplers.messages import (
    Cancel,
    Command,
    Event,
    Failed,
    Finished,
    Job,
    Lost,
    NewWeights,
    Ready,
    Stop,
    Taken,
)
from ingot.post.samplers.transport import Transport
from ingot.workspace.errors import CheckFailed

END_SECONDS = 5.0  # what a sampler that was told to end gets before it is killed
LOOK_SECONDS = 0.2  # between two looks at the clock while nothing is said
START_SECONDS = 900.0  # what a sampler gets until it is ready
STARTS = 3  # of a sampler in a row, without a finished group between them

Inbox: TypeAlias = "queue.SimpleQueue[tuple[Worker, Event]]"


class Worker(ABC):
    """What a sampler runs in, the way to it, and what is known about it. It puts what it hears into the inbox."""

    def __init__(self) -> None:
        self.ready, self.waiting = False, list[Job | Cancel]()  # what is for a sampler that is still starting
        self.taken = -1  # the version that it samples with
        self.heard = time.monotonic()

    @abstractmethod
    def say(self, message: Command) -> None:
        """Send a message. A dead sampler is detected by the thread that reads its replies."""

    @abstractmethod
    def end(self) -> str:
        """End it, whatever it is doing, and say how it ended; one that was told to stop gets a while for that."""

    def overdue(self, silence: float) -> Lost | None:
        """Why it is given up, if it has said nothing for too long."""
        allowed = silence if self.ready else START_SECONDS
        late = time.monotonic() - self.heard > allowed
        return Lost(f"it was silent for {allowed:g} seconds") if late else None


class Fleet(Transport):
    """`count` samplers, started by the first weights."""

    def __init__(self, count: int, silence: float) -> None:
        self.count, self.silence = count, silence
        self.newest: NewWeights | None = None
        self.inbox: Inbox = queue.SimpleQueue()
        self.workers: list[Worker] = []
        self.starts = [0] * count
        self.held: list[tuple[int, Event]] = []  # said while weights were sent

    @abstractmethod
    def start(self, number: int) -> Worker:
        """Start a sampler."""

    @abstractmethod
    def publish(self, weights: Iterable[tuple[str, Tensor]], version: int) -> NewWeights:
        """Copy weights to where samplers find them."""

    def send_weights(self, weights: Iterable[tuple[str, Tensor]], version: int) -> None:
        self.make_room()
        self.newest = self.publish(weights, version)
        while len(self.workers) < self.count:
            self.workers.append(self._start(len(self.workers)))
        for each in self.workers:
            if each.ready:
                each.say(self.newest)

    def send(self, sampler: int, message: Job | Cancel) -> None:
        worker = self.workers[sampler]
        if worker.ready:
            worker.say(message)
        else:
            worker.waiting.append(message)

    def receive(self, seconds: float) -> list[tuple[int, Event]]:
        held, self.held = self.held, []
        return held + self.hear(0.0 if held else seconds)

    def close(self) -> None:
        for worker in self.workers:
            if worker.ready:
                worker.say(Stop())
        for worker in self.workers:
            worker.end()
        self.workers, self.newest, self.held = [], None, []
        self.starts = [0] * self.count

    def hear(self, seconds: float) -> list[tuple[int, Event]]:
        """Return the events received so far and restart samplers that have died or timed out."""
        said: list[tuple[int, Event]] = []
        with suppress(queue.Empty):
            said += self._note(*self.inbox.get(timeout=seconds) if seconds > 0 else self.inbox.get_nowait())
            while True:
                said += self._note(*self.inbox.get_nowait())
        for number, worker in enumerate(self.workers):
            lost = worker.overdue(self.silence)
            if lost is not None:
                said.append((number, self._replace(number, lost)))
        return said

    def _note(self, worker: Worker, event: Event) -> list[tuple[int, Event]]:
        """Handle one event; return those that the caller needs. Events of a replaced sampler are dropped."""
        if worker not in self.workers:
            return []
        number, worker.heard = self.workers.index(worker), time.monotonic()
        match event:
            case Ready():
                worker.ready = True
                assert self.newest is not None
                worker.say(self.newest)
                for message in worker.waiting:
                    worker.say(message)
                return []
            case Taken():
                worker.taken = event.version
                return []
            case Failed():
                raise CheckFailed(f"a sampler failed: {event.problem}", place=f"sampler {number}")
            case Lost():
                return [(number, self._replace(number, event))]
            case Finished():
                self.starts[number] = 0
        return [(number, event)]

    def _replace(self, number: int, lost: Lost) -> Lost:
        how = self.workers[number].end()
        if self.starts[number] >= STARTS:
            raise CheckFailed(
                f"the sampler ended {STARTS} times without a finished group: {lost.reason} ({how})",
                place=f"sampler {number}",
                fix="look at what it printed; with too little memory lower slots",
            )
        self.workers[number] = self._start(number)
        return lost

    def _start(self, number: int) -> Worker:
        self.starts[number] += 1
        return self.start(number)
