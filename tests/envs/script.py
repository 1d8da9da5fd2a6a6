"""Policies that follow a script: every completion that was begun is written by the next step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ingot.inference.sampling import Sampling
from ingot.tokens.chat import Message


def wrong(solution: Sequence[Message]) -> list[Message]:
    """The same conversation with a wrong answer at its end, in the right form."""
    *before, last = solution
    return [*before, replace(last, content=f"{last.content}1")]


@dataclass(eq=False)
class Reply:
    tokens: list[int]
    logprobs: list[float]
    versions: list[int]
    finish: str | None = None
    waiting: bool = False


class Script(ABC):
    """Remembers what it was asked, in the order of asking."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []
        self.samplings: list[Sampling] = []
        self.begun: list[Reply] = []
        self.cancelled: list[Reply] = []

    @abstractmethod
    def reply(self, prompt: list[int], sampling: Sampling) -> Reply:
        """What it writes."""

    def submit(self, prompt: list[int], sampling: Sampling, *, follows: Any = None) -> Reply:
        self.asked.append(list(prompt))
        self.samplings.append(sampling)
        self.begun.append(self.reply(prompt, sampling))
        return self.begun[-1]

    def step(self) -> None:
        for reply in self.begun:
            reply.finish = "stop"
        self.begun = []

    def cancel(self, request: Reply) -> None:
        if request.finish is None:
            self.cancelled.append(request)

    def complete(self, prompts: Sequence[list[int]], samplings: Sequence[Sampling]) -> list[Reply]:
        return [self.reply(prompt, sampling) for prompt, sampling in zip(prompts, samplings, strict=True)]
