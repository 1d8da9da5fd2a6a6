"""Prompts of one's own, from files: what an answer earns is for reward functions to say, or whether it is the reference.

Rows: {"prompt": a text or a list of messages, "answer": the reference, if there is one}. Reward functions find whatever else a
row has in `episode.task.data`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from pydantic import Field

from ingot.envs.environment import in_place
from ingot.envs.episode import Score
from ingot.envs.files import FileEnvironment
from ingot.envs.rows import Row
from ingot.envs.task import Task
from ingot.envs.verifiers.text.reply import format_ok
from ingot.tokens.chat import Message
from ingot.workspace.errors import DataError


class OwnPrompts(FileEnvironment):
    """Prompts of your own: an answer earns 1 if it is the row's `answer`, and what the stage's `rewards` give."""

    label: ClassVar[str] = "own prompts"
    thinking: bool = Field(False, description="ask for a trace before the answer")

    def read(self, row: Row, place: str) -> Task | None:
        prompt, answer = row.get("prompt"), row.get("answer")
        data = {key: value for key, value in row.items() if key not in ("prompt", "answer")}
        text = "" if answer is None else str(answer)
        return self.ask(_messages(prompt, place), text, thinking=self.thinking, data=data)

    @in_place
    def score(self, task: Task, messages: Sequence[Message]) -> Score:
        """As any task's; without a reference the task itself gives nothing, and no answer is right."""
        if task.answer or self.rewards():
            return super().score(task, messages)
        return Score(0.0, False, format_ok(messages, task.thinking))


def _messages(prompt: Any, place: str) -> str | list[Message]:
    if isinstance(prompt, str) and prompt:
        return prompt
    if isinstance(prompt, list) and prompt and all(map(_is_message, prompt)):
        return [Message(each["role"], each["content"]) for each in prompt]
    fix = 'write {"prompt": "…"} or {"prompt": [{"role": "user", "content": "…"}]}'
    raise DataError("the row has no prompt", place=place, fix=fix)


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(value.get(key), str) for key in ("role", "content"))
