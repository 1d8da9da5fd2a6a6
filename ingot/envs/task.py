"""What a task is, what a score is, and what a kind of task and a policy must be able to do.

Invariants: a task belongs to exactly one split, decided by a hash of its fact: what is asked, without its wording and, where
that does not matter, without its order (37 + 48, "add 48 and 37" and their sum asked for directly are one fact). So what is
held out is held out in every wording, whatever the seed, the kind or the difficulty. The same (seed, count, split) gives the
same tasks on every machine; a task's id is a hash of its question, so that two checkpoints are compared on the same tasks by id.
"""

from __future__ import annotations

import hashlib
import random
import re
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Protocol

from pydantic import Field

from ingot.envs.verify import final_content, format_ok, parse_number, same_number, same_text
from ingot.inference.sampling import Sampling
from ingot.tokens.chat import Message
from ingot.workspace.errors import DataError
from ingot.workspace.kinds import Kind, Kinds
from ingot.workspace.outside import is_outside

Split = Literal["train", "test"]
TEST_SHARE = 5  # one fact in five is a test fact
PATIENCE = 1000  # draws without a new question after which the questions of a kind count as used up


@dataclass(frozen=True)
class Task:
    """One question with a known answer. `messages` is the prompt; `tools` the schemas of the tools it may use; `asked` is what
    the question asks, without its wording, as its kind keeps it for `solution`."""

    id: str
    kind: str
    messages: tuple[Message, ...]
    answer: str
    tools: tuple[dict[str, Any], ...] = ()
    thinking: bool = True
    split: Split = "train"
    asked: tuple[Any, ...] = ()

    @property
    def question(self) -> str:
        """The text of the last user message."""
        return self.messages[-1].content


@dataclass(frozen=True)
class Score:
    """What a verifier says: `reward` for training, `correct` for accuracy, `detail` for measures of one task kind."""

    reward: float
    correct: bool
    format_ok: bool
    detail: Mapping[str, float] = field(default_factory=dict)


class TaskKind(Kind):
    """A kind of task: its options are fields, its work is `draw`, `solution` and, if equality is not enough, `score`."""

    key: ClassVar[str] = "task"
    package: ClassVar[str] = "ingot.envs.tasks"
    label: ClassVar[str] = ""  # what tables call it; by default its name
    task: str = Field("", description="the kind itself; it need not be written where the key above says it")

    @property
    def kind(self) -> str:
        """A short name, for ids and metrics: a built-in kind's file, another one's class in lower case."""
        name = self.kind_name()
        return name if not is_outside(name) else re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(self).__name__).lower()

    @abstractmethod
    def draw(self, rng: random.Random) -> Task:
        """A task from anywhere in the world of this kind (`make_task`)."""

    @abstractmethod
    def solution(self, task: Task) -> list[Message]:
        """A correct conversation after the prompt: thinking, tool calls with their results, the answer."""

    def weaker(self, task: Task, rng: random.Random) -> list[Message]:
        """A wrong conversation after the prompt, well formed and near to a right one (see evals/suites/preferences.py)."""
        *before, answer = self.solution(task)
        return [*before, replace(answer, content=f"not {answer.content}")]

    def score(self, task: Task, messages: Sequence[Message]) -> Score:
        """Judge the messages that followed the prompt: by default, the answer must be the whole content, as number or text."""
        same = same_number if parse_number(task.answer) is not None else same_text
        correct, well_formed = same(final_content(messages), task.answer), format_ok(messages, task.thinking)
        return Score(float(correct and well_formed), correct, well_formed)

    def generate(self, seed: int, count: int, split: Split) -> list[Task]:
        """`count` tasks of a split; test tasks are distinct, train tasks are as far as there are enough questions."""
        return draw_tasks(self.kind, self.draw, seed, count, split)


TASKS = Kinds(TaskKind, "task kind")  # type: ignore[type-abstract]


class Completion(Protocol):
    """What a policy wrote: its tokens with the stop token, their log-probabilities, and which weights drew each."""

    @property
    def tokens(self) -> Sequence[int]: ...

    @property
    def logprobs(self) -> Sequence[float]: ...

    @property
    def versions(self) -> Sequence[int]: ...


class Writing(Completion, Protocol):
    """A completion on its way: `finish` says why it ended, and is None until it has."""

    @property
    def finish(self) -> str | None: ...


class Policy(Protocol):
    """What writes the replies: an engine, or a script in a test."""

    def complete(self, prompts: list[list[int]], samplings: list[Sampling]) -> Sequence[Completion]:
        """One completion per prompt, in the same order."""

    def submit(self, prompt: list[int], sampling: Sampling, *, follows: Any = None) -> Writing:
        """Begin a completion; `follows` is the one before it in the same conversation."""

    def step(self) -> None:
        """Move all completions on that were begun."""

    def cancel(self, request: Any) -> None:
        """Give up a completion; one that has ended stays as it is."""


def fact_split(fact: str) -> Split:
    """The split a fact belongs to: a function of its text only."""
    return "test" if int(_digest(fact)[:8], 16) % TEST_SHARE == 0 else "train"


def make_task(
    kind: str,
    question: str,
    answer: str,
    *,
    fact: str | None = None,
    asked: tuple[Any, ...] = (),
    tools: Sequence[dict[str, Any]] = (),
    thinking: bool = True,
) -> Task:
    """A one-question task with its id and split filled in; a question of which there is one wording is its own fact."""
    mode = "think" if thinking else "direct"
    return Task(
        id=f"{kind}-{_digest(f'{kind}/{mode}/{question}')[:12]}",
        kind=kind,
        messages=(Message(role="user", content=question),),
        answer=answer,
        tools=tuple(tools),
        thinking=thinking,
        split=fact_split(question if fact is None else fact),
        asked=asked,
    )


def draw_tasks(kind: str, draw: Callable[[random.Random], Task], seed: int, count: int, split: Split) -> list[Task]:
    """Draw tasks of one split until there are `count`.

    Questions are distinct while new ones turn up. When they are used up, train tasks repeat (several passes over a
    small world are fine), while test tasks are an error: a repeated test task would shrink the standard error for
    nothing. A world so small that the split has no question at all is an error, too.
    """
    rng = random.Random(f"{kind}/{split}/{seed}")
    tasks: list[Task] = []
    seen: set[str] = set()
    misses = others = 0
    while len(tasks) < count:
        task = draw(rng)
        if task.split != split:
            others += 1
            if not tasks and others == PATIENCE:
                raise DataError(
                    f"none of {PATIENCE} drawn questions is a {split} question",
                    place=f"task kind {kind}",
                    fix="widen the difficulty of this kind: it has very few questions",
                )
            continue
        if task.id in seen and misses < PATIENCE:
            misses += 1
            continue
        if task.id in seen and split == "test":
            raise DataError(
                f"asked for {count} distinct test tasks, but there are only about {len(seen)} questions",
                place=f"task kind {kind}",
                fix="ask for fewer tasks or widen the difficulty of this kind",
            )
        if misses < PATIENCE:
            misses = 0
        seen.add(task.id)
        tasks.append(task)
    return tasks


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()
