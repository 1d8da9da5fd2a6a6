"""What hermes-4-14b-mini.yaml measures: whether an answer ended by itself, right or wrong; the report has the overlong rate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ingot.envs.episode import Score
from ingot.envs.task import Task
from ingot.envs.tasks.strings import Strings
from ingot.tokens.chat import Message


class Ended(Strings):
    """Tasks on the letters of a word; an answer counts if its thought was closed and its turn ended before the limit."""

    label: ClassVar[str] = "ended in time"

    def score(self, task: Task, messages: Sequence[Message]) -> Score:
        ended = messages[-1].thinking is not None and not messages[-1].problems
        return Score(float(ended), ended, super().score(task, messages).format_ok)
