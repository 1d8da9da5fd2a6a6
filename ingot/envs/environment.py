"""An environment: where tasks come from, what they offer, how an episode goes on, and what it earns.

    class Squares(Environment):
        "Squares of whole numbers."
        largest: int = Field(99, description="the largest number that is squared")

        def draw(self, rng):                              # or `rows(split)`: tasks of a file
            number = rng.randint(0, self.largest)
            return self.ask(f"What is {number} squared?", str(number**2))

        @reward(weight=0.1)
        def brief(self, episode):                         # plain or async; any number of them
            return float(len(episode.answer) < 20)

Fields are the options that a recipe gives. Everything but the tasks has a default: one turn, no tools, no state, and the reward
1 for an answer that is, as a whole, the reference (number or text) in the right form. It runs wherever a recipe names a task
kind: `sft` and `prefer` (with `solution`), `rl`, `distill`, `eval`, `synthesize`, `ingot env test`.

The hooks below may be plain functions or `async def`. They run beside the sampling, within deadlines (rollout/episode_run.py).
What they raise is a failure of the environment: the episode is counted as failed, and has no reward. Nothing that a model
writes should make them raise.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar, TypeVar

from pydantic import Field

from ingot.envs.episode import Episode, Score
from ingot.envs.errors import EnvironmentFailed
from ingot.envs.rollout.background import call
from ingot.envs.task import Split, Task, choose_rows, draw_tasks, make_task
from ingot.envs.tools.tool import Tool
from ingot.envs.verifiers.text.reply import final_content, format_ok, parse_number, same_number, same_text
from ingot.tokens.chat import Message
from ingot.workspace.errors import DataError, RecipeError
from ingot.workspace.kinds import Kind, Kinds

Function = TypeVar("Function", bound=Callable[..., Any])
SOLVES = "correct"  # the reward of this name says whether a task is solved


@dataclass(frozen=True)
class Weighted:
    """How a reward counts."""

    weight: float = 1.0
    every_turn: bool = False


def reward(weight: float = 1.0, *, every_turn: bool = False) -> Callable[[Function], Function]:
    """Marks a method `(self, episode) -> float` as a reward: at the end of the episode, or after each turn of the policy."""
    if callable(weight):
        raise TypeError("write @reward() with parentheses")

    def mark(function: Function) -> Function:
        function.__reward__ = Weighted(weight, every_turn)  # type: ignore[attr-defined]
        return function

    return mark


def in_place(function: Function) -> Function:
    """Marks a `score` that always ends at once: it is called in place (`score_at_once`). One that overrides it is not marked."""
    function.__in_place__ = True  # type: ignore[attr-defined]  # a mark, as that of `reward`
    return function


@dataclass(frozen=True)
class NewContext:
    """A reply that starts a new segment: the policy goes on from these messages, and forgets the others."""

    messages: Sequence[Message]


class Environment(Kind):
    """A kind of task: its options are fields, its work is `draw` or `rows`, and the hooks that it needs."""

    key: ClassVar[str] = "task"
    package: ClassVar[str] = "ingot.envs.tasks"
    label: ClassVar[str] = ""  # what tables call it; by default its name
    tools: ClassVar[Sequence[Tool | Callable[..., Any]]] = ()  # what each of its tasks offers
    task: str = Field("", description="the kind itself; it need not be written where the key above says it")

    @property
    def kind(self) -> str:
        """Its short name, for ids and metrics."""
        return self.short_name

    # -- tasks

    def draw(self, rng: random.Random) -> Task:
        """A task from anywhere in the world of this environment (`self.ask`), if it makes them up."""
        fix = "write `draw(self, rng)` or `rows(self, split)`"
        raise RecipeError(f"the task kind {self.kind} has no tasks", fix=fix)

    def rows(self, split: Split) -> Sequence[Task] | None:
        """All tasks of a split, if they come from files (`self.ask(…, split=split)`); None if they are drawn."""
        return None

    def ask(self, question: str | Sequence[Message], answer: str = "", **options: Any) -> Task:
        """A task with this environment's name and tools; the options are those of `make_task`."""
        return make_task(self.kind, question, answer, **{"tools": self.tools, **options})

    def generate(self, seed: int, count: int, split: Split) -> list[Task]:
        """`count` tasks of a split; test tasks are distinct, train tasks are as far as there are enough questions."""
        rows = self.rows(split)
        if rows is not None:
            return choose_rows(self.kind, rows, seed, count, split)
        return draw_tasks(self.kind, self.draw, seed, count, split)

    def solution(self, task: Task) -> list[Message]:
        """A correct conversation after the prompt: thinking, tool calls with their results, the answer. Optional."""
        raise DataError(
            "there is no worked solution",
            place=f"task kind {self.kind}",
            fix="write `solution`, or train on it by `rl` or `distill`, which need none",
        )

    def weaker(self, task: Task, rng: random.Random) -> list[Message]:
        """A wrong conversation after the prompt, well formed and near to a right one (see evals/suites/preferences.py)."""
        *before, answer = self.solution(task)
        return [*before, replace(answer, content=f"not {answer.content}")]

    @property
    def has_solutions(self) -> bool:
        """Whether it works out its tasks."""
        return type(self).solution is not Environment.solution

    # -- how an episode goes on: each hook may be `async def`

    def setup(self, task: Task) -> Any:
        """The state of an episode: `episode.state` in every hook, and the parameter `state` of tools."""
        return None

    @property
    def stateful(self) -> bool:
        """Whether `setup` is called: where there is nothing to set up, no episode waits for another thread to say so."""
        return type(self).setup is not Environment.setup

    def teardown(self, state: Any) -> Any:
        """Called with the state when the episode has ended, however it did."""

    def reply(self, episode: Episode) -> Any:
        """What the environment says after a turn without a tool call: a user's messages, a `NewContext`, or nothing (the end)."""
        return ()

    def done(self, episode: Episode) -> Any:
        """The stop rule, asked after each turn of the policy: whether the episode ends here."""
        return False

    # -- what it earns

    @in_place
    def score(self, task: Task, messages: Sequence[Message]) -> Score:
        """Judge the messages that followed the prompt, where no method is marked as a reward.

        By default the answer must be the whole content, as number or text. Where methods are marked, they decide.
        """
        if self.rewards():
            return asyncio.run(self._judge_messages(task, messages))
        same = same_number if parse_number(task.answer) is not None else same_text
        correct, well_formed = same(final_content(messages), task.answer), format_ok(messages, task.thinking)
        return Score(float(correct and well_formed), correct, well_formed)

    def score_at_once(self, task: Task, messages: Sequence[Message]) -> Score | None:
        """The score where it is found in no time, whatever a model wrote; None: it is left to `judge`, beside the sampling.

        To hand work over to another thread costs the sampling more than most scores take.
        """
        at_once = hasattr(type(self).score, "__in_place__") and not self.rewards()
        return self.score(task, messages) if at_once else None

    async def judge(self, episode: Episode) -> Score:
        """The score of an episode that has ended: the sum of its weighted rewards, or `score`.

        A task counts as solved if the reward called `correct` is at least 1; without one, if all rewards are.
        """
        marked = self.rewards()
        if not marked:
            return _checked(await call(self.score, episode.task, episode.messages), self.kind)
        values: dict[str, float] = {}
        for name, each in marked.items():
            if each.every_turn:
                values[name] = sum(node.rewards.get(name, 0.0) for node in episode.nodes)
            else:
                values[name] = _number(name, await call(getattr(self, name), episode))
        total = sum(each.weight * values[name] for name, each in marked.items())
        correct = values[SOLVES] >= 1 if SOLVES in values else all(value >= 1 for value in values.values())
        return Score(total, correct, format_ok(episode.messages, episode.task.thinking), rewards=values)

    async def judge_turn(self, episode: Episode) -> dict[str, float]:
        """What the policy's last turn earns by itself."""
        marked = {name: each for name, each in self.rewards().items() if each.every_turn}
        return {name: _number(name, await call(getattr(self, name), episode)) for name in marked}

    @classmethod
    @cache
    def rewards(cls) -> Mapping[str, Weighted]:
        """The methods that are marked as rewards, in the order in which they are written."""
        found: dict[str, Weighted] = {}
        for base in reversed(cls.__mro__):
            found |= {name: each.__reward__ for name, each in vars(base).items() if hasattr(each, "__reward__")}
        return found

    async def _judge_messages(self, task: Task, messages: Sequence[Message]) -> Score:
        """The score of a conversation that nobody sampled."""
        state = await call(self.setup, task)
        try:
            return await self.judge(Episode(task, [], list(messages), state=state))
        finally:
            await call(self.teardown, state)


TASKS = Kinds(Environment, "task kind")


def _number(name: str, value: Any) -> float:
    """A reward, if it is a finite number."""
    if isinstance(value, int | float) and math.isfinite(value):
        return float(value)
    raise EnvironmentFailed(f"the reward {name} is {value!r}, not a number")


def _checked(score: Any, kind: str) -> Score:
    if not isinstance(score, Score):
        raise EnvironmentFailed(f"the score of {kind} is {score!r}, not a Score")
    _number("of score", score.reward)
    return score
