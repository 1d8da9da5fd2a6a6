"""Rewards made of several: rules, judges and reward models, each a function of a task and its messages.

    gated(rule, judged)             rule × judged, and the judge is asked only where the rule gives something
    weighted((2, rule), (1, other)) weighted mean
    by_reward_model(model)          σ((r − centre) / scale): an unbounded score of a reward model as a share

A rule gates better than it adds: a judge's liking must not pay for a wrong answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol

from ingot.envs.task import Task
from ingot.envs.verifiers.judges.judge import Judge
from ingot.envs.verifiers.judges.rubric import Rubric
from ingot.envs.verifiers.text.reply import final_content
from ingot.tokens.chat import Message
from ingot.workspace.errors import DataError

Reward = Callable[[Task, Sequence[Message]], float]


class ConversationScorer(Protocol):
    """A model that scores whole conversations; higher is better, and only differences mean anything."""

    def scores(self, conversations: Sequence[Sequence[Message]]) -> Sequence[float]:
        """One score a conversation, in the same order."""


def gated(rule: Reward, judged: Reward) -> Reward:
    """The product; where the rule gives 0 nobody else is asked."""

    def reward(task: Task, messages: Sequence[Message]) -> float:
        first = rule(task, messages)
        return first * judged(task, messages) if first else 0.0

    return reward


def weighted(*parts: tuple[float, Reward]) -> Reward:
    """The mean of rewards by positive weights."""
    total = sum(weight for weight, _ in parts)
    if not parts or any(weight <= 0 for weight, _ in parts):
        raise DataError("a weighted reward needs parts with weights above 0", place="hybrid reward")
    return lambda task, messages: sum(weight * part(task, messages) for weight, part in parts) / total


def by_rubric(rubric: Rubric, judge: Judge, *, reference: bool = False) -> Reward:
    """A judge's score of the final answer; `reference` shows it the task's own answer. An empty answer is not judged: 0."""

    def reward(task: Task, messages: Sequence[Message]) -> float:
        answer = final_content(messages)
        if not answer.strip():
            return 0.0
        return rubric.score(judge, task.question, answer, task.answer if reference else None).value

    return reward


def by_reward_model(model: ConversationScorer, *, centre: float = 0.0, scale: float = 1.0) -> Reward:
    """A reward model's score of the conversation, squashed to 0…1."""

    def reward(task: Task, messages: Sequence[Message]) -> float:
        (score,) = model.scores([[*task.messages, *messages]])
        return 0.5 * (1 + math.tanh((score - centre) / scale / 2))  # the logistic function, which cannot overflow so

    return reward
