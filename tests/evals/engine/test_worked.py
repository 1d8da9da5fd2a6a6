"""Answers are graded beside the engine: told by the order of events, with graders that wait for what must come first."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Generator, Sequence
from typing import Any

import pytest

from ingot.evals.bases.generations import Grade, Item, grading
from ingot.evals.bases.suite import Measured, Subject
from ingot.evals.engine.answer import Answerer, RoutedRequest, measure_together
from ingot.evals.engine.request import Generation, PlainText, Question, Request, Worked, Written
from ingot.workspace.errors import IngotError, Interrupted
from ingot.workspace.interrupt import StopSignal

DEADLINE = 30.0  # of a grader that waits: over only if nothing goes on beside it
Asking = Generator[Sequence[Request], Sequence[Any], Measured]


class OneAStep(Answerer):
    """Answers one request at each step, with its own text."""

    def __init__(self) -> None:
        self.waiting: deque[RoutedRequest] = deque()
        self.given: list[str] = []
        self.closed = False

    def begin(self, asked: Sequence[RoutedRequest]) -> None:
        self.waiting.extend(asked)

    def step(self) -> None:
        asked = self.waiting.popleft()
        assert isinstance(asked.request, Generation) and isinstance(asked.request.prompt, PlainText)
        self.given.append(asked.request.prompt.text)
        asked.give(Written(asked.request.prompt.text, None, "stop", 1))

    def close(self) -> None:
        self.closed = True


def subject(stop: StopSignal | None = None) -> Subject:
    return Subject("scripted", "text", stop or StopSignal())


def texts(*names: str) -> list[Generation]:
    return [Generation(PlainText(name)) for name in names]


def test_a_grader_that_waits_holds_up_neither_its_own_suite_nor_another() -> None:
    """The first answer's grader waits until the other suite has had two rounds and ended."""
    ended, engine = threading.Event(), OneAStep()
    found: list[Any] = []

    def grade(number: int, answer: Written) -> str:
        assert number or ended.wait(DEADLINE), "nothing went on while the first answer was graded"
        return f"{answer.text} {number}"

    def slow() -> Asking:
        found.extend((yield Worked(texts("a", "b", "c"), grade, threads=1)))
        assert engine.given == ["a", "b", "c", "x", "y", "z"]
        return Measured()

    def quick() -> Asking:
        assert [answer.text for answer in (yield texts("x", "y"))] == ["x", "y"]
        assert [answer.text for answer in (yield texts("z"))] == ["z"]
        ended.set()
        return Measured()

    measure_together([(slow(), subject()), (quick(), subject())], engine)
    assert found == ["a 0", "b 1", "c 2"]


def test_as_many_are_graded_at_once_as_a_suite_says() -> None:
    together = threading.Barrier(3, timeout=DEADLINE)  # broken, if fewer than three are graded at once
    found: list[Any] = []

    def asking() -> Asking:
        found.extend((yield Worked(texts(*"abcdef"), lambda number, answer: (together.wait(), number)[1], threads=3)))
        return Measured()

    measure_together([(asking(), subject())], OneAStep())
    assert found == list(range(6))


def test_an_error_of_a_grader_ends_the_measurement_before_all_is_sampled() -> None:
    failed, closed = threading.Event(), []
    many = [str(number) for number in range(10_000)]

    def grade(number: int, answer: Written) -> None:
        failed.set()
        raise IngotError("this grader is broken", place="suite")

    class Patient(OneAStep):
        """Gives the second answer only when the first one's grader has failed."""

        def step(self) -> None:
            assert not self.given or failed.wait(DEADLINE)
            super().step()

    engine = Patient()

    def asking() -> Asking:
        try:
            yield Worked(texts(*many), grade)
        finally:
            closed.append(True)
        return Measured()

    before = threading.active_count()
    with pytest.raises(IngotError, match="this grader is broken"):
        measure_together([(asking(), subject())], engine)
    assert engine.closed and closed and len(engine.given) < len(many)
    assert threading.active_count() == before


def test_a_stop_is_heard_while_only_graders_are_at_work() -> None:
    stop, begun = StopSignal(), []

    def grade(number: int, answer: Written) -> None:
        begun.append(number)
        stop.request()
        threading.Event().wait(0.3)  # long enough to be stopped beside

    def asking() -> Asking:
        yield Worked(texts(*"abcdefgh"), grade, threads=1)
        return Measured()

    with pytest.raises(Interrupted):
        measure_together([(asking(), subject(stop))], OneAStep())
    assert len(begun) < 8  # the others were given up


def test_an_answer_that_the_model_did_not_give_is_not_graded() -> None:
    items = [Item(name, Question(name)) for name in ("a", "b")]
    work = grading(texts("a", "b"), items, lambda item, text: Grade({"right": float(text == item.id)})).work
    assert work(0, Written("a", None, "stop", 1)).grade == Grade({"right": 1.0})
    failed = work(1, Written("b", None, "error", 0))
    assert failed.grade is None and failed.problem == "the model gave no answer: error"
