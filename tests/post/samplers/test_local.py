"""Samplers of this machine: the learner never waits for one that stands still, and one that dies is replaced or ends the run."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection

import pytest
from torch import Tensor

from ingot.post.samplers import local
from ingot.post.samplers.fleet import LOOK_SECONDS, STARTS, Fleet, Inbox, Worker
from ingot.post.samplers.local import Outbox
from ingot.post.samplers.messages import Event, Finished, Job, Lost, NewWeights, Ready, Stop, Taken
from ingot.workspace.errors import CheckFailed

MANY = 20_000  # far more than a pipe holds
DEADLINE = 30.0


def say_many(say: Callable[[Job], None]) -> None:
    """Say it all, within the deadline."""

    def work() -> None:
        for number in range(MANY):
            say(Job(number, 8))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(DEADLINE)
    assert not thread.is_alive(), "the learner waits for the sampler"


def test_a_sampler_that_reads_nothing_blocks_nobody() -> None:
    """What the pipe has no room for waits; when the sampler goes on it gets all of it, in order."""
    near, far = multiprocessing.Pipe()
    outbox = Outbox(near)
    say_many(outbox.put)
    assert outbox.messages.qsize() > 0, "else the pipe was large enough"
    assert [far.recv().number for _ in range(MANY)] == list(range(MANY))
    outbox.close()
    assert not outbox.thread.is_alive()


def test_a_sampler_that_is_gone_ends_the_sending() -> None:
    """Its end of the pipe is closed while the thread waits for room in it, as when the process is killed."""
    near, far = multiprocessing.Pipe()
    outbox = Outbox(near)
    for number in range(MANY):
        outbox.put(Job(number, 8))
    far.close()
    began = time.monotonic()
    outbox.close()
    assert not outbox.thread.is_alive() and time.monotonic() - began < DEADLINE


def stand_still(*_: object) -> None:
    """A sampler's process that reads nothing."""
    time.sleep(10 * DEADLINE)


@pytest.mark.slow
def test_a_process_that_reads_nothing_blocks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that is stopped; to end it takes as long as it gets for ending by itself."""
    monkeypatch.setattr(local, "serve", stand_still)
    inbox: Inbox = queue.SimpleQueue()
    worker = local.ProcessWorker(inbox, None, None)  # type: ignore[arg-type]  # it looks at neither
    say_many(worker.say)
    began = time.monotonic()
    assert worker.end() == "exit code -9" and time.monotonic() - began < DEADLINE
    assert not worker.outbox.thread.is_alive()


ENDLESS, FATAL = 100, 200  # numbers of groups: one that is played without end, one that kills the sampler


def play(pipe: Connection, *_: object) -> None:
    """A sampler's process that answers at once, without a model."""
    pipe.send(Ready())
    while not isinstance(message := pipe.recv(), Stop):
        if isinstance(message, NewWeights):
            pipe.send(Taken(message.version))
        elif isinstance(message, Job) and message.number == FATAL:
            os.kill(os.getpid(), signal.SIGKILL)
        elif isinstance(message, Job) and message.number != ENDLESS:
            pipe.send(Finished(message.number, 0, ()))


class Players(Fleet):
    """Processes of `play`."""

    def make_room(self) -> None:
        """Weights are not written anywhere."""

    def publish(self, weights: Iterable[tuple[str, Tensor]], version: int) -> NewWeights:
        return NewWeights(version, 0, 0)

    def start(self, number: int) -> Worker:
        return local.ProcessWorker(self.inbox, None, None)  # type: ignore[arg-type]

    def next(self) -> tuple[int, Event]:
        """The next event."""
        deadline = time.monotonic() + DEADLINE
        while not (said := self.receive(LOOK_SECONDS)):
            assert time.monotonic() < deadline, "nothing is said of a sampler that is gone"
        self.held += said[1:]
        return said[0]


@pytest.fixture
def players(monkeypatch: pytest.MonkeyPatch) -> Iterator[Players]:
    monkeypatch.setattr(local, "serve", play)
    players = Players(2, silence=10 * DEADLINE)
    players.send_weights([], 7)
    yield players
    players.close()


def test_a_sampler_that_is_killed_is_said_to_be_lost_and_replaced(players: Players) -> None:
    """In the middle of a group. The other one goes on; the new one has the newest weights and takes the group."""
    players.send(0, Job(1, 8))
    assert players.next() == (0, Finished(1, 0, ()))
    players.send(1, Job(2, 8))
    assert players.next() == (1, Finished(2, 0, ()))
    players.send(1, Job(ENDLESS, 8))
    victim = players.workers[1]
    assert isinstance(victim, local.ProcessWorker) and victim.process.pid is not None
    os.kill(victim.process.pid, signal.SIGKILL)
    assert players.next() == (1, Lost("its process has ended"))
    assert players.workers[1] is not victim and victim.process.exitcode == -signal.SIGKILL
    players.send(1, Job(3, 8))
    assert players.next() == (1, Finished(3, 0, ()))
    assert players.workers[1].taken == 7
    players.send(0, Job(4, 8))
    assert players.next() == (0, Finished(4, 0, ()))


def test_a_sampler_that_dies_again_and_again_ends_the_run(players: Players) -> None:
    for _ in range(STARTS - 1):
        players.send(0, Job(FATAL, 8))
        assert players.next() == (0, Lost("its process has ended"))
    players.send(0, Job(FATAL, 8))
    problem = r"sampler 0: the sampler ended 3 times without a finished group: its process has ended \(exit code -9\)"
    with pytest.raises(CheckFailed, match=rf"{problem}\n  fix: look at what it printed"):
        players.next()
