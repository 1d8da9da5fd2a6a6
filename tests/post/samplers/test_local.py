"""Messages to a sampler of this machine: the learner never waits for one that stands still, and their order stays."""

from __future__ import annotations

import multiprocessing
import queue
import threading
import time
from collections.abc import Callable

import pytest

from ingot.post.samplers import local
from ingot.post.samplers.fleet import Inbox
from ingot.post.samplers.local import Outbox
from ingot.post.samplers.messages import Job

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
