"""Measures a suite with answers from a script instead of a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ingot.evals.bases.suite import Measured, Subject, Suite
from ingot.evals.engine.prompt import Form
from ingot.evals.engine.request import Conversation, Generation, Question, Worked, Written
from ingot.workspace.interrupt import StopSignal

Script = Callable[[Generation], str | Written]


def subject(data: Path | None = None, form: Form = "text", **more: Any) -> Subject:
    return Subject("scripted", form, StopSignal(), data=data, **more)


def written(text: str, finish: str = "stop") -> Written:
    return Written(text, None, finish, len(text.split()))


def measure(suite: Suite, script: Script, about: Subject | None = None) -> Measured:
    """What the suite finds if every request is answered by the script."""
    measuring = suite.measure(about or subject())
    assert not isinstance(measuring, Measured)
    answers: Sequence[Written] | None = None
    while True:
        try:
            requests = measuring.send(answers)  # type: ignore[arg-type]
        except StopIteration as end:
            found: Measured = end.value
            return found
        replies = [script(request) for request in requests]  # type: ignore[arg-type]
        answers = [written(reply) if isinstance(reply, str) else reply for reply in replies]
        if isinstance(requests, Worked):
            answers = [requests.work(number, answer) for number, answer in enumerate(answers)]


def values(found: Measured) -> dict[str, float]:
    return {metric.name: metric.estimate.value for metric in found.metrics}


def units(found: Measured) -> dict[str, Mapping[str, float]]:
    return {metric.name: metric.units for metric in found.metrics}


def last_text(request: Generation) -> str:
    """What the user says last."""
    prompt = request.prompt
    if isinstance(prompt, Question):
        return prompt.text
    assert isinstance(prompt, Conversation)
    return prompt.messages[-1].content


def recorded(suite: Suite, about: Subject | None = None, reply: str = "") -> list[Generation]:
    """The requests of a suite, each of which gets the same reply."""
    asked: list[Generation] = []

    def script(request: Generation) -> str:
        asked.append(request)
        return reply

    measure(suite, script, about)
    return asked
