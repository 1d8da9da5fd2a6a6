"""Questions that need no thinking, asked in the mode without it: the prompt closes the thinking block already.

A fact is asked in several wordings. The split is by question, so that a test question asks a fact that training showed
in other words: what is tested is answering directly, not a sum that was never seen.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from ingot.envs.config import NoThinkConfig
from ingot.envs.task import Score, Split, Task, draw_tasks, make_task
from ingot.envs.verify import final_content, format_ok, same_number, same_text
from ingot.tokens.chat import Message

SUMS = ("{} + {}?", "{} plus {}?", "What is {} + {}?", "What is {} plus {}?", "Add {} and {}.", "Sum of {} and {}?")
LASTS = ("Last letter: {}", "Last of: {}", "Final letter: {}")
LETTERS = "abcdefghijklmnopqrstuvwxyz"


class NoThink:
    """The task kind `no_think`."""

    kind = "no_think"

    def __init__(self, config: NoThinkConfig | None = None) -> None:
        self.config = config or NoThinkConfig()

    def generate(self, seed: int, count: int, split: Split) -> list[Task]:
        return draw_tasks(self.kind, self._draw, seed, count, split)

    def _draw(self, rng: random.Random) -> Task:
        if rng.choice(self.config.operations) == "sum":
            left, right = (rng.randint(0, self.config.largest) for _ in range(2))
            return make_task(self.kind, rng.choice(SUMS).format(left, right), str(left + right), thinking=False)
        length = rng.randint(self.config.letters_min, self.config.letters_max)
        word = [rng.choice(LETTERS) for _ in range(length)]
        return make_task(self.kind, rng.choice(LASTS).format(" ".join(word)), word[-1], thinking=False)

    def solution(self, task: Task) -> list[Message]:
        return [Message(role="assistant", content=work_out(task.question))]

    def weaker(self, task: Task, rng: random.Random) -> list[Message]:
        answer = work_out(task.question)
        if answer.isdigit():
            wrong = str(int(answer) + rng.choice((1, 2) if answer == "0" else (-1, 1)))
        else:
            wrong = rng.choice([letter for letter in LETTERS if letter != answer])
        return [Message(role="assistant", content=wrong)]

    def score(self, task: Task, messages: Sequence[Message]) -> Score:
        same = same_number if task.answer.isdigit() else same_text
        correct = same(final_content(messages), task.answer)
        well_formed = format_ok(messages, task.thinking)
        return Score(float(correct and well_formed), correct, well_formed)


def work_out(question: str) -> str:
    """The answer of a question that this kind wrote."""
    numbers = re.findall(r"[0-9]+", question)
    return str(sum(map(int, numbers))) if numbers else question[-1]
