"""Conversations as training sequences: through the chat template, with weight 1 on what is learnt."""

from __future__ import annotations

import json
import math
import random
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from ingot.envs.config import TaskMixConfig
from ingot.envs.mix import TaskMix
from ingot.envs.task import Task, make_task
from ingot.envs.tools.find import find_tools
from ingot.envs.tools.tool import schemas
from ingot.post.data.conversations.conversation import Conversation, in_mode
from ingot.post.data.conversations.learn import Learn, token_weights
from ingot.tokens.batch import Batch, TokenSequence
from ingot.tokens.chat import ChatFormat, Message
from ingot.tokens.packing import make_batch
from ingot.tokens.rendering import Rendering
from ingot.train.batches import deal, split_rows
from ingot.train.source import Source
from ingot.workspace.errors import DataError

LOOKED_AT = 64  # tasks whose tools are those of all
CHAT_TOOLS = ("calculator",)  # what `ingot chat` offers unless it is told otherwise


def task_conversations(
    mix: TaskMixConfig,
    chat: ChatFormat,
    count: int,
    seed: int,
    longest: int | None = None,
    follow_ups: float = 0.0,
    spare_tools: float = 0.0,
    learn: Learn = "assistant",
    others: Sequence[Conversation] = (),
    other_share: float = 0.0,
) -> list[TokenSequence]:
    """Generated tasks with their worked solutions; every solution is scored, and one that fails is a bug worth stopping for.

    A share of the tasks follows others in the same conversation, as long as that has at most `longest` tokens. There the tools
    of all of them are on offer, so the model also learns to answer a question with a history before it, and one that does not
    need the tool it is offered. Of what follows, `other_share` are `others`: conversations of files, which come alone as well.
    """
    tasks = TaskMix(mix)
    rng = random.Random(f"follow/{seed}")
    generated = tasks.generate(seed, count, "train")
    every = _tools(generated) or schemas(find_tools(CHAT_TOOLS).values())
    joined = random.Random(f"others/{seed}")
    conversations: list[TokenSequence] = []
    newest: dict[bool, Opened] = {}  # by the mode of thinking

    def follows(task: Task, said: Sequence[Message]) -> bool:
        """Whether the task fits after the newest conversation of its mode; then it is there."""
        before = newest[task.thinking]
        longer, sequence = _rendered(chat, before, [*before.asked, task], [*before.said, *said], learn)
        if longest is not None and len(sequence.tokens) > longest:
            return False
        conversations[before.index], newest[task.thinking] = sequence, longer
        return True

    for task in generated:
        said = _solved(tasks, task)
        if not (task.thinking in newest and rng.random() < follow_ups and follows(task, said)):
            opened = Opened(len(conversations), every if rng.random() < spare_tools else [])
            newest[task.thinking], sequence = _rendered(chat, opened, [task], said, learn, longest)
            conversations.append(sequence)
        if others and joined.random() < follow_ups * other_share:
            other = joined.choice(others)
            thinking = task.thinking if other.thinking is None else other.thinking
            if thinking in newest:
                messages = in_mode(other.messages, thinking) if other.thinking is None else other.messages
                follows(make_task("file", messages, thinking=thinking), messages)
    return conversations


def tools_of_chat(mix: TaskMixConfig | None, seed: int) -> list[dict[str, object]]:
    """What a conversation may be offered without need: the tools of the tasks, or what a chat offers if they have none."""
    tasks = [] if mix is None else TaskMix(mix).generate(seed, LOOKED_AT, "train")
    return _tools(tasks) or schemas(find_tools(CHAT_TOOLS).values())


@dataclass(frozen=True)
class Opened:
    """A conversation that a next question may follow: its place in the list, and the tools that are offered if none is needed.

    `asked` are its questions, `said` all that was said, `rendering` its way through the template as far as it went.
    """

    index: int
    spare: list[dict[str, object]]
    asked: Sequence[Task] = ()
    said: Sequence[Message] = ()
    rendering: Rendering | None = None


def _tools(tasks: Sequence[Task]) -> list[dict[str, object]]:
    """The tools of all tasks, each once."""
    return list({json.dumps(tool, sort_keys=True): tool for task in tasks for tool in task.schemas}.values())


def _solved(tasks: TaskMix, task: Task) -> list[Message]:
    """The task's question and its worked solution."""
    solution = tasks.solution(task)
    if tasks.score(task, solution).reward != 1:
        raise DataError(
            f"the worked solution of {task.question!r} does not pass its own verifier",
            place=task.id,
            fix="this is a fault of the task's kind (ingot/envs/tasks): leave the kind out of `tasks.weights`, and report it",
        )
    return [*task.messages, *solution]


def _rendered(
    chat: ChatFormat,
    before: Opened,
    asked: Sequence[Task],
    said: list[Message],
    learn: Learn,
    longest: int | None = None,
) -> tuple[Opened, TokenSequence]:
    """The conversation that goes on from `before`, of these tasks, and its tokens."""
    tools, thinking = _tools(asked) or before.spare, asked[0].thinking
    try:
        rendering = chat.rendering(said, tools, thinking, before.rendering)
        sequence = _sequence(chat, rendering, Conversation(said, tools, thinking), longest, learn)
    except DataError as error:
        place = f"generated tasks: {', '.join(task.id for task in asked)}"
        fix = f"{error.fix}; or leave such kinds out of `tasks.weights`, or write tasks: null"
        raise DataError(error.problem, place=place, fix=fix) from error
    return Opened(before.index, before.spare, asked, said, rendering), sequence


def as_sequence(
    chat: ChatFormat,
    messages: list[Message],
    tools: list[dict[str, object]],
    thinking: bool,
    longest: int | None = None,
    learn: Learn = "assistant",
) -> TokenSequence:
    """One conversation with the stream `weight`: 1 on what is learnt. Longer than `longest` tokens is an error."""
    rendering = chat.rendering(messages, tools, thinking)
    return _sequence(chat, rendering, Conversation(messages, tools, thinking), longest, learn)


def _sequence(
    chat: ChatFormat, rendering: Rendering, conversation: Conversation, longest: int | None, learn: Learn
) -> TokenSequence:
    tokens, mask = chat.learnt(rendering)
    if longest is not None and len(tokens) > longest:
        raise DataError(
            f"the conversation has {len(tokens)} tokens, a row of this stage takes {longest}",
            fix="raise the stage's sequence_length, or leave the conversation out",
        )
    return TokenSequence(tokens, {"weight": token_weights(chat, tokens, mask, conversation, learn)})


def repeats(own: int, others: int, share: float) -> int:
    """How often `own` conversations are repeated to be at least this share of all; once if they already are."""
    return max(1, math.ceil(share * others / ((1 - share) * own))) if own else 0


class ShuffledPool:
    """Endless passes over a list, each in its own order: item i is a pure function of (seed, i)."""

    def __init__(self, size: int, seed: int) -> None:
        self.size, self.seed = size, seed
        self._pass, self._order = -1, array("q")  # eight bytes an item: there may be millions

    def __getitem__(self, index: int) -> int:
        number, place = divmod(index, self.size)
        if number != self._pass:
            self._pass, self._order = number, array("q", range(self.size))
            random.Random(f"pool/{self.seed}/{number}").shuffle(self._order)
        return self._order[place]


class PoolSource(Source):
    """Steps of `count` groups drawn from a shuffled pool; the sequences of a group stay in the same micro-batch."""

    noun = "answers"  # what a group is, on the screen

    def __init__(
        self, groups: Sequence[Sequence[TokenSequence]], count: int, capacity: int, micro_batch_tokens: int, seed: int
    ) -> None:
        self.groups, self.count, self.capacity = groups, count, capacity
        self.micro_batch_tokens = micro_batch_tokens
        self.pool = ShuffledPool(len(groups), seed)

    def steps_of(self, passes: float) -> int:
        """How many steps so many passes are."""
        return math.ceil(passes * len(self.groups) / self.count)

    @property
    def longest(self) -> int:
        """The tokens of the longest sequence that a model predicts."""
        return max(len(sequence.tokens) for group in self.groups for sequence in group) - 1

    def describe(self, steps: int) -> list[str]:
        """What a pass is, for the screen before training begins."""
        tokens = sum(len(sequence.tokens) for group in self.groups for sequence in group)
        return [describe_pass(f"{len(self.groups):,} {self.noun}", tokens, len(self.groups) / self.count, steps)]

    def draw(self, step: int) -> list[Sequence[TokenSequence]]:
        """The groups of a step. Where one pass ends and the next begins, a group may come twice."""
        return [self.groups[self.pool[step * self.count + i]] for i in range(self.count)]

    def batches(self, step: int, rank: int = 0, world: int = 1) -> tuple[list[Batch], dict[str, float]]:
        return deal(pack_groups(self.draw(step), self.capacity, self.micro_batch_tokens, world), rank, world), {}


def describe_pass(content: str, tokens: float, updates: float, steps: int) -> str:
    """A pass in words; `updates` are the steps that it takes."""
    return f"a pass: {content}, {tokens:,.0f} tokens, {updates:,.3g} steps; {steps:,} steps are {steps / updates:.2g} passes"


def pack_groups(
    groups: Sequence[Sequence[TokenSequence]], capacity: int, micro_batch_tokens: int, ranks: int = 1
) -> list[Batch]:
    """Micro-batches of about `micro_batch_tokens`, or smaller ones, so that each of several ranks gets some.

    Groups of one sequence are packed together and cut by rows; they make the same rows whatever the ranks.
    """
    if all(len(group) == 1 for group in groups):
        batch = make_batch([group[0] for group in groups], capacity)
        rows, length = batch.tokens.shape
        most = max(1, micro_batch_tokens // length)
        count = max(-(-rows // most), min(ranks, rows))
        # full ones, which have the same shape in every step; where each rank has one, parts of equal size
        return split_rows(batch, most if count > ranks else -(-rows // count))
    tokens = sum(len(sequence.tokens) for group in groups for sequence in group)
    micro_batch_tokens = min(micro_batch_tokens, -(-tokens // ranks))
    batches, part, size = [], list[TokenSequence](), 0
    for group in groups:
        length = sum(len(sequence.tokens) for sequence in group)
        if part and size + length > micro_batch_tokens:
            batches.append(make_batch(part, capacity))
            part, size = [], 0
        part.extend(group)
        size += length
    return [*batches, make_batch(part, capacity)]
