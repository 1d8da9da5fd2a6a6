"""Prefetching: the right step every time, ahead of time, never two at once; errors and stuck disks surface in `get`."""

from __future__ import annotations

import threading
import time
import traceback

import pytest

from ingot.tokens.prefetch import Prefetcher
from ingot.workspace.errors import DataError
from tests.making.processes import wait_until


class Producer:
    """Gives step -> 10 step, and remembers what it was asked for and how many calls ran at once."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds, self.asked, self.running, self.most = seconds, list[int](), 0, 0

    def __call__(self, step: int) -> int:
        self.running += 1
        self.most = max(self.most, self.running)
        self.asked.append(step)
        time.sleep(self.seconds)
        self.running -= 1
        return 10 * step


def test_steps_in_order_are_made_ahead_and_once() -> None:
    producer = Producer()
    with Prefetcher(producer, 3, 10, depth=2) as prefetcher:
        wait_until(lambda: producer.asked == [3, 4])
        time.sleep(0.02)
        assert producer.asked == [3, 4], "no further ahead than the depth"
        for step in range(3, 10):
            assert prefetcher.get(step)[0] == 10 * step
        assert producer.asked == list(range(3, 10)), "and none from last_step on"
    assert not any(thread.name == "prefetch" for thread in threading.enumerate())


def test_the_wait_is_what_was_waited() -> None:
    with Prefetcher(Producer(seconds=0.1), 0, 5, depth=2) as prefetcher:
        _, first = prefetcher.get(0)
        assert 0.05 < first < 5, "nothing was ready"
        time.sleep(0.4)
        _, second = prefetcher.get(1)
        assert second < 0.05, "it was made while the step was computed"


def test_going_back_and_skipping_restart_cleanly() -> None:
    producer = Producer(seconds=0.002)
    order = [0, 1, 2, 3, 1, 2, 9, 10, 0, 1, 25, 26, 3]
    with Prefetcher(producer, 0, 20, depth=3) as prefetcher:
        assert [prefetcher.get(step)[0] for step in order] == [10 * step for step in order]
    assert producer.most == 1, "never twice at once"


def test_restart_makes_everything_again() -> None:
    """What a loader gives for a step changes when a phase is ended by hand."""
    offset = [0]
    with Prefetcher(lambda step: step + offset[0], 0, 10, depth=4) as prefetcher:
        assert prefetcher.get(0)[0] == 0
        time.sleep(0.02)
        offset[0] = 100
        prefetcher.restart(1)
        assert [prefetcher.get(step)[0] for step in (1, 2, 3)] == [101, 102, 103]


def fail_at_two(step: int) -> int:
    if step == 2:
        raise KeyError("the disk is gone")
    return step


def test_an_exception_comes_out_of_get_with_its_traceback() -> None:
    with Prefetcher(fail_at_two, 0, 10) as prefetcher:
        assert [prefetcher.get(step)[0] for step in (0, 1)] == [0, 1]
        for _ in range(2):  # asked for again, it is tried again
            with pytest.raises(KeyError, match="the disk is gone") as caught:
                prefetcher.get(2)
            assert "fail_at_two" in [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
        assert prefetcher.get(3)[0] == 3


def test_a_stuck_disk_is_an_error_in_get_and_in_close() -> None:
    release = threading.Event()

    def stuck(step: int) -> int:
        release.wait(30)
        return step

    prefetcher = Prefetcher(stuck, 0, 10, deadline_seconds=0.1)
    try:
        with pytest.raises(DataError, match=r"prefetch thread: step 0 was not there after 0\.1 s.*disk"):
            prefetcher.get(0)
        with pytest.raises(DataError, match=r"the thread did not end after 0\.1 s"):
            prefetcher.close()
    finally:
        release.set()
    prefetcher.close()
    prefetcher.close()
    with pytest.raises(ValueError, match="closed"):
        prefetcher.get(1)


def test_an_exception_of_the_trainer_does_not_leave_the_thread() -> None:
    with pytest.raises(RuntimeError, match="trainer"), Prefetcher(Producer(), 0, 100) as prefetcher:
        prefetcher.get(0)
        raise RuntimeError("trainer")
    assert not any(thread.name == "prefetch" for thread in threading.enumerate())


def test_depth() -> None:
    with pytest.raises(ValueError, match="depth of 0"):
        Prefetcher(Producer(), 0, 1, depth=0)
