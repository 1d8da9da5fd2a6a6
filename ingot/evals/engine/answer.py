"""Answers the requests of all suites together.

Every suite's `measure` is a generator of requests (suite.py). All of them are begun, their requests go into one queue, and a
suite goes on as soon as its own answers are there: so the engine's batch stays full whatever the suites are, and a suite that
asks in several rounds (a second turn, a judge) does not hold up the others. Answers to `Worked` requests are graded in threads
as they come, while the engine goes on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

from ingot.evals.bases.suite import Measured, Measuring, Subject
from ingot.evals.engine.request import Request, Requests, Worked

POLL_SECONDS = 0.1  # between two looks at whether to stop, while nothing but graders is at work


class Round:
    """Requests of one suite that are answered, and whose answers are worked on, before it goes on."""

    def __init__(self, requests: Requests = ()) -> None:
        self.answers: list[Any] = [None] * len(requests)
        self.left = len(requests)  # requests without an answer
        self.working: dict[int, Future[Any]] = {}
        self._work = requests.work if isinstance(requests, Worked) else None
        self._threads = ThreadPoolExecutor(requests.threads) if isinstance(requests, Worked) else None

    def give(self, place: int, answer: Any) -> None:
        """The answer to the request at this place."""
        self.left -= 1
        if self._work is None or self._threads is None:
            self.answers[place] = answer
        else:
            self.working[place] = self._threads.submit(self._work, place, answer)

    def collect(self) -> None:
        """Take what the threads have done; raises what they raised."""
        for place in [place for place, future in self.working.items() if future.done()]:
            self.answers[place] = self.working.pop(place).result()

    @property
    def through(self) -> bool:
        """Whether all answers are there and worked on."""
        return self.left == 0 and not self.working

    def close(self) -> None:
        """Give up work that has not begun, and wait for what has."""
        if self._threads is not None:
            self._threads.shutdown(wait=True, cancel_futures=True)


@dataclass(frozen=True)
class RoutedRequest:
    """One request, of whom it is asked and how, and where its answer goes."""

    request: Request
    subject: Subject
    round: Round
    place: int

    def give(self, answer: Any) -> None:
        """Answer it."""
        self.round.give(self.place, answer)


class Answerer(ABC):
    """What answers requests: an engine here, or a server."""

    moved: Callable[[], object] | None = None  # to be called between two steps of work that takes long

    @property
    def tokens(self) -> int:
        """The tokens that were written so far, of answers on their way too, where they can be counted."""
        return 0

    @abstractmethod
    def begin(self, asked: Sequence[RoutedRequest]) -> None:
        """Take requests; their answers are given as they come."""

    @abstractmethod
    def step(self) -> None:
        """Work on what was taken; called again and again until all is answered."""

    @abstractmethod
    def close(self) -> None:
        """Give up what is not answered, and leave nothing behind."""


@dataclass(eq=False)
class _Open:
    """A suite that is being measured."""

    measuring: Measuring
    subject: Subject
    round: Round = field(default_factory=Round)


def measure_together(
    measurings: Sequence[tuple[Measuring, Subject]],
    answerer: Answerer,
    progress: Callable[[int, int], None] = lambda done, all: None,
) -> list[Measured]:
    """What each suite found. `progress` is told, at every step, how many requests are answered, and how many there are so far."""
    found: dict[int, Measured] = {}
    opened = {number: _Open(*each) for number, each in enumerate(measurings)}
    asked_so_far = 0

    def report() -> int:
        left = sum(each.round.left for each in opened.values())
        progress(asked_so_far - left, asked_so_far)
        return left

    answerer.moved = report
    try:
        for number, each in list(opened.items()):
            asked_so_far += _advance(number, each, None, answerer, opened, found)
        while opened:
            for each in opened.values():
                each.round.collect()
            left = report()
            through = [(number, each) for number, each in opened.items() if each.round.through]
            for number, each in through:
                asked_so_far += _advance(number, each, each.round.answers, answerer, opened, found)
            if not through and left:
                answerer.step()
            elif not through:
                _wait_for_work(list(opened.values()))
        progress(asked_so_far, asked_so_far)
    finally:
        answerer.close()
        for each in opened.values():
            each.round.close()
            each.measuring.close()
    return [found[number] for number in range(len(measurings))]


def _advance(
    number: int,
    each: _Open,
    answers: list[Any] | None,
    answerer: Answerer,
    opened: dict[int, _Open],
    found: dict[int, Measured],
) -> int:
    """Let a suite go on with its answers; how many requests it has made."""
    each.round.close()
    try:
        requests: Requests = next(each.measuring) if answers is None else each.measuring.send(answers)
    except StopIteration as end:
        found[number] = end.value
        del opened[number]
        return 0
    each.round = Round(requests)
    answerer.begin([RoutedRequest(request, each.subject, each.round, place) for place, request in enumerate(requests)])
    return len(requests)


def _wait_for_work(opened: Sequence[_Open]) -> None:
    """Nothing is left to be answered: wait a little for the graders, whose oldest work is done first."""
    oldest = [next(iter(each.round.working.values())) for each in opened]
    wait(oldest, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED)
    opened[0].subject.stop.check()
