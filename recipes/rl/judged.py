"""A judge as the reward, where no rule can read what counts: a rule checks the form, a model on a server scores the rest.

    tasks: {weights: {"judged.py:Judged": 1}, "judged.py:Judged": {judged_by: {url: "http://127.0.0.1:8000/v1", model: NAME}}}

The rule gates: the judge is asked only about answers that keep to the length, and its liking does not pay for others. A request
that fails is sent again by the client; if it fails for good, the answer has no reward and is sampled again.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from typing import Annotated

from pydantic import Field

from ingot.envs.environment import Environment
from ingot.envs.episode import Score
from ingot.envs.task import Task
from ingot.envs.verifiers.judges.config import JUDGES, JudgeConfig
from ingot.envs.verifiers.judges.hybrid import by_rubric, gated
from ingot.envs.verifiers.judges.judge import Judge
from ingot.envs.verifiers.judges.rubric import Point, Rubric
from ingot.envs.verifiers.text.reply import final_content, format_ok
from ingot.tokens.chat import Message

RUBRIC = Rubric(
    (Point("Explains it correctly", weight=2), Point("A child understands it", most=4), Point("Is rude", -1))
)
WORDS = ("rain", "a shadow", "a magnet", "sleep", "an echo", "rust", "the moon's phases", "a vaccine", "bread rising")


@cache
def connect(judge: JudgeConfig) -> Judge:
    """One client for all episodes of a process: it bounds how many requests are on their way."""
    return judge.open(max_tokens=512)


class Judged(Environment):
    """Explain something in a few words, to the liking of a judge."""

    judged_by: Annotated[JudgeConfig, JUDGES] = Field(  # type: ignore[assignment]  # read by its keys
        {"url": "http://127.0.0.1:8000/v1", "model": "judge"}, description="{url, model}, {checkpoint} or file.py:Name"
    )
    longest: int = Field(280, gt=0, description="characters of an answer; a longer one earns nothing")

    def draw(self, rng: random.Random) -> Task:
        return self.ask(f"Explain {rng.choice(WORDS)} in at most {self.longest} characters.", thinking=False)

    def score(self, task: Task, messages: Sequence[Message]) -> Score:
        judged = by_rubric(RUBRIC, connect(self.judged_by))
        value = gated(self.is_short, judged)(task, messages)
        return Score(value, value > 0.5, format_ok(messages, task.thinking))

    def is_short(self, task: Task, messages: Sequence[Message]) -> float:
        """The rule."""
        return float(len(final_content(messages)) <= self.longest)
