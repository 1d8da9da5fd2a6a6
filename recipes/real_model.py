"""Small sums for a model that answers in sentences: its last number counts."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from ingot.envs.environment import Environment
from ingot.envs.episode import Score
from ingot.envs.task import Task
from ingot.envs.verifiers.text.reply import final_content
from ingot.tokens.chat import Message


class Sums(Environment):
    """Small sums, right if the last number of the answer is the sum."""

    def draw(self, rng: random.Random) -> Task:
        left, right = rng.randint(1, 20), rng.randint(1, 20)
        question = f"What is {left} + {right}? Answer with the number."
        return self.ask(question, str(left + right), fact=f"{min(left, right)} + {max(left, right)}", thinking=False)

    def solution(self, task: Task) -> list[Message]:
        return [Message(role="assistant", content=task.answer)]

    def score(self, task: Task, messages: Sequence[Message]) -> Score:
        numbers = re.findall(r"\d+", final_content(messages))
        correct = numbers[-1:] == [task.answer]
        return Score(float(correct), correct, bool(numbers))
