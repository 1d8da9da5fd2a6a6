"""Makers of conversations: environments whose tasks are rows of files, and whose rewards are filters.

    synthesize:
      environments:
        - {environment: {task: answers, train: [prompts.jsonl], filters: [incomplete_thoughts, accuracy]}, samples: 4, again: 2}

A maker is a task kind like any other (envs/environment.py), so it is attempted, saved and resumed as one (rejection.py), by an
endpoint or by a checkpoint. It adds where its tasks come from, in any form of row_forms.py, and which conversation comes of an
attempt. The built-in ones are in makers/; a class of your own derives from `Maker`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field

from ingot.envs.environment import Environment, reward
from ingot.envs.episode import Episode
from ingot.envs.files import FileEnvironment
from ingot.envs.rows import Row
from ingot.envs.task import Task
from ingot.post.data.conversations.conversation import Conversation
from ingot.post.data.conversations.conversation_filter import FILTERS, ConversationFilter
from ingot.post.data.conversations.row_forms import RowForm, prompt_of
from ingot.post.data.conversations.row_messages import split_trace
from ingot.tokens.chat import Message
from ingot.workspace.errors import DataError
from ingot.workspace.kinds import Kinds

PACKAGE = "ingot.post.synthesis.makers"


class Maker(FileEnvironment):
    """Conversations made from the rows of files; filters decide which are kept."""

    form: RowForm = Field("auto", description="form of the rows, as of `sft.files`")
    filters: tuple[Annotated[ConversationFilter, FILTERS], ...] = Field(
        (), description="what drops a conversation that was made, as `sft.filters`"
    )
    thinking: bool = Field(True, description="the writer thinks, and its trace is learnt")

    def read(self, row: Row, place: str) -> Task | None:
        try:
            return self.task_of(row, place)
        except DataError as error:
            where = ", ".join(filter(None, (place, error.place)))
            raise DataError(error.problem, place=where, fix=error.fix) from error

    def task_of(self, row: Row, place: str) -> Task | None:
        """The task of a row: what it asks, as it asks it."""
        asked = prompt_of(row, self.form)
        return self.ask(asked.messages, thinking=self.thinking, data=origin(row, place))

    def conversation(self, episode: Episode) -> Conversation:
        """What is learnt of an attempt: the prompt and what followed; as one without thinking where the writer did not think."""
        written = traced(episode.messages)
        thinking = episode.task.thinking and any(message.thinking for message in written)
        messages = [*episode.task.messages, *written]
        return Conversation(messages, list(episode.task.schemas), thinking, row=episode.task.data.get("row", {}))

    @reward()
    def correct(self, episode: Episode) -> float:
        """Whether no filter drops what was made."""
        if not episode.answer.strip():
            return 0.0
        made = self.conversation(episode)
        return float(all(each.reason(made) is None for each in self.filters))

    def outside(self) -> dict[str, str]:
        read = super().outside()
        return read | {name: found for each in self.filters for name, found in each.outside().items()}


def origin(row: Row, place: str) -> dict[str, Any]:
    """Where a task is from, for the lineage of what is made."""
    return {"row": row, "place": place}


def traced(messages: Sequence[Message]) -> list[Message]:
    """The messages with their traces apart: some servers write <think>…</think> into the content."""
    made = []
    for message in messages:
        trace, content, problems = split_trace(message.content) if not message.thinking else (None, "", [])
        found = message.role == "assistant" and trace is not None
        made.append(replace(message, thinking=trace, content=content, problems=problems) if found else message)
    return made


class EnvironmentsAndMakers(Kinds[Environment]):
    """Task kinds and makers, by their names. A maker's own name is that of its module, as for a class from outside."""

    def names(self) -> list[str]:
        return [*super().names(), *self.makers()]

    def makers(self) -> list[str]:
        """The built-in makers."""
        return sorted(found.name for found in pkgutil.iter_modules(importlib.import_module(PACKAGE).__path__))

    def find(self, name: str) -> type[Environment]:
        if name not in self.makers():
            return super().find(name)
        module = importlib.import_module(f"{PACKAGE}.{name}")
        (kind,) = (one for one in vars(module).values() if self._is_kind(one) and one.__module__ == module.__name__)
        return kind


ENVIRONMENTS = EnvironmentsAndMakers(Environment, "task kind or maker")
