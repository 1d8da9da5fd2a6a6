"""Conversations as training sequences: through the chat template, with weight 1 on what the assistant writes."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence as SequenceOf
from pathlib import Path

from ingot.envs.config import TaskMixConfig
from ingot.envs.tasks.mix import TaskMix
from ingot.tokens.batch import Batch, Sequence
from ingot.tokens.chat import ChatFormat, Message
from ingot.tokens.packing import make_batch
from ingot.train.batches import split_rows
from ingot.workspace.errors import DataError


def task_conversations(mix: TaskMixConfig, chat: ChatFormat, count: int, seed: int) -> list[Sequence]:
    """Generated tasks with their worked solutions; every solution is scored, and one that fails is a bug worth stopping for."""
    tasks = TaskMix(mix)
    sequences = []
    for task in tasks.generate(seed, count, "train"):
        solution = tasks.solution(task)
        if tasks.score(task, solution).reward != 1:
            raise DataError(f"the worked solution of {task.question!r} does not pass its own verifier", place=task.id)
        sequences.append(as_sequence(chat, [*task.messages, *solution], list(task.tools), task.thinking))
    return sequences


def file_conversations(path: Path, chat: ChatFormat) -> list[Sequence]:
    """Conversations of a JSONL file; a broken line is an error that names it."""
    sequences = []
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), start=1):
        if not line.strip():
            continue
        place = f"{path}:{number}"
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise DataError(f"not JSON: {error}", place=place, fix="write one JSON object a line") from error
        if not isinstance(row, dict) or not isinstance(row.get("messages"), list):
            raise DataError(
                "no list `messages` in this row", place=place, fix='write {"messages": [{"role", "content"}]}'
            )
        try:
            messages = [Message.from_dict(message) for message in row["messages"]]
        except (KeyError, TypeError, AttributeError) as error:
            raise DataError(f"a message lacks or misspells a part: {error!r}", place=place) from error
        try:
            sequences.append(as_sequence(chat, messages, row.get("tools") or [], row.get("thinking", True)))
        except DataError as error:
            raise DataError(error.problem, place=place, fix=error.fix) from error
    return sequences


def as_sequence(chat: ChatFormat, messages: list[Message], tools: list[dict[str, object]], thinking: bool) -> Sequence:
    """One conversation with the stream `weight`: 1 on the assistant's tokens."""
    tokens, mask = chat.conversation(messages, tools, thinking)
    return Sequence(tokens, {"weight": [float(one) for one in mask]})


class ShuffledPool:
    """Endless passes over a list, each in its own order: item i is a pure function of (seed, i)."""

    def __init__(self, size: int, seed: int) -> None:
        self.size, self.seed = size, seed
        self._pass, self._order = -1, list[int]()

    def __getitem__(self, index: int) -> int:
        number, place = divmod(index, self.size)
        if number != self._pass:
            self._pass, self._order = number, list(range(self.size))
            random.Random(f"pool/{self.seed}/{number}").shuffle(self._order)
        return self._order[place]


class PoolSource:
    """Steps of `count` groups drawn from a shuffled pool; the sequences of a group stay in the same micro-batch."""

    def __init__(
        self, groups: SequenceOf[SequenceOf[Sequence]], count: int, capacity: int, micro_batch_tokens: int, seed: int
    ) -> None:
        self.groups, self.count, self.capacity = groups, count, capacity
        self.micro_batch_tokens = micro_batch_tokens
        self.pool = ShuffledPool(len(groups), seed)

    def batches(self, step: int) -> tuple[list[Batch], dict[str, float]]:
        chosen = [self.groups[self.pool[step * self.count + i]] for i in range(self.count)]
        return pack_groups(chosen, self.capacity, self.micro_batch_tokens), {}


def pack_groups(groups: SequenceOf[SequenceOf[Sequence]], capacity: int, micro_batch_tokens: int) -> list[Batch]:
    """Micro-batches of about `micro_batch_tokens`. Groups of one sequence are packed together and cut by rows."""
    if all(len(group) == 1 for group in groups):
        batch = make_batch([group[0] for group in groups], capacity)
        return split_rows(batch, max(1, micro_batch_tokens // batch.tokens.shape[1]))
    batches, part, size = [], list[Sequence](), 0
    for group in groups:
        length = sum(len(sequence.tokens) for sequence in group)
        if part and size + length > micro_batch_tokens:
            batches.append(make_batch(part, capacity))
            part, size = [], 0
        part.extend(group)
        size += length
    return [*batches, make_batch(part, capacity)]
