"""A task that a base model can stumble upon: say the letter that is repeated. For the miniatures that begin without SFT.

    bbbb 417        b

A base model of bytes goes on with a letter every now and then, and now and then with the right one; a chat format it does not
know. So an answer is what it begins with: it counts if that is the letter, and has the form if that is any of the letters.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import ClassVar

from ingot.envs.environment import Environment
from ingot.envs.episode import Score
from ingot.envs.task import Task
from ingot.envs.verifiers.text.reply import final_content
from ingot.tokens.chat import Message

LETTERS = "abcd"


class Zero(Environment):
    """Say the letter that is repeated."""

    label: ClassVar[str] = "repeated letters"

    def draw(self, rng: random.Random) -> Task:
        letter, number = rng.choice(LETTERS), rng.randrange(1000)
        return self.ask(f"{letter * 4} {number}", letter, fact=f"repeated {letter} {number}", thinking=False)

    def solution(self, task: Task) -> list[Message]:
        return [Message(role="assistant", content=task.answer)]

    def score(self, task: Task, messages: Sequence[Message]) -> Score:
        first = final_content(messages).strip()[:1].lower()
        return Score(float(first == task.answer), first == task.answer, first != "" and first in LETTERS)
