"""An environment whose tool has the answer, with a solution for SFT: the model calls `lookup` and repeats what it says."""

from __future__ import annotations

import random

from ingot.envs.environment import Environment
from ingot.envs.task import Task
from ingot.tokens.chat import Message, ToolCall

COLOURS = {"sky": "blue", "grass": "green", "coal": "black", "snow": "white", "blood": "red", "sun": "yellow"}


def lookup(thing: str) -> str:
    """The colour of a thing."""
    return COLOURS.get(thing, "error: no such thing")


class Colours(Environment):
    """The colour of a thing, by a tool."""

    tools = (lookup,)

    def draw(self, rng: random.Random) -> Task:
        thing, number = rng.choice(sorted(COLOURS)), rng.randint(1, 99)
        return self.ask(f"{number}. Colour of {thing}?", COLOURS[thing], thinking=False)

    def solution(self, task: Task) -> list[Message]:
        call = ToolCall("lookup", {"thing": task.question.split()[-1].strip("?")})
        answer = lookup(**call.arguments)
        return [Message("assistant", "", tool_calls=[call]), Message("tool", answer), Message("assistant", answer)]
