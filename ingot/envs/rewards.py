"""Grades finished episodes by plain functions of the user's, which a recipe names: `rewards: [brevity.py:brevity]`.

    def brevity(episode: Episode) -> float:
        return 1 - min(len(episode.answer), 200) / 200

    reward of an episode = weight of `task` · what its environment gives + Σ weight · function(episode)

A function is plain or `async`, as a method that is marked `@reward()`, and sees every episode that has ended: `task`,
`messages`, `answer`, `segments`, but no `state`. What it does, and what follows:

    no finite number                    the run ends; the error names the function
    raises                              the run ends; the error names the function, file and line
    raises one of OF_ANSWERS            0 from it for this answer, which is counted (`answers_unreadable`): what a model writes
                                        may be no number, no JSON, too short. Until it has worked once, a function that does
                                        so for every answer of a batch ends the run, too
    does not end within its deadline    0 from it for this answer, which is counted (`answers_too_slow`)
    raises EnvironmentFailed            the episode has failed, and has no reward: a judge that gives no verdict
"""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from numbers import Real
from typing import Annotated, Any

from pydantic import BeforeValidator

from ingot.envs.environment import Environment
from ingot.envs.episode import Episode, Score
from ingot.envs.errors import EnvironmentFailed
from ingot.envs.rollout.background import BackgroundWork
from ingot.workspace.errors import CheckFailed
from ingot.workspace.functions import FunctionName
from ingot.workspace.outside import load_outside, raised_at

TASK = "task"
"""Instead of a function: what the environment itself gives."""
RAISED = (Exception, SystemExit)  # an exit, as of argparse, would end the thread in which all functions are called
OF_ANSWERS = (ValueError, LookupError, ArithmeticError, SyntaxError, RecursionError)
SECONDS = 120.0  # for one function and one answer
WAIT_SECONDS = 0.05  # between two calls of `between`


def _as_mapping(value: Any) -> Any:
    """A list as a mapping to weights of 1."""
    if isinstance(value, str):
        raise ValueError("write a list of functions, [file.py:function], or a mapping of them to weights")
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
        return value
    if twice := {name for name in value if value.count(name) > 1}:
        raise ValueError(f"{min(twice)} is listed twice")
    return dict.fromkeys(value, 1.0)


HEAD = "brevity(episode)"
OwnRewardName = Annotated[str, FunctionName("reward function", HEAD)]
RewardName = Annotated[str, FunctionName("reward function", HEAD, (TASK,))]
RewardWeights = Annotated[dict[RewardName, float], BeforeValidator(_as_mapping)]
"""Names of reward functions with their weights, or a list of names; `task` has the weight 1 unless it is given."""


def check_rewards(weights: Iterable[str], environments: Iterable[Environment]) -> None:
    """A ValueError if two rewards would have one name in metrics and trajectories."""
    known = {name: f"a reward of the task kind {each.kind}" for each in environments for name in type(each).rewards()}
    for spec in weights:
        name = short_name(spec)
        if name in known:
            raise ValueError(f"rewards: {name} is also {known[name]}; give the function another name")
        known[name] = "another function's name"


def short_name(spec: str) -> str:
    """The function's own name, by which metrics and trajectories know its reward."""
    return spec.rpartition(":")[2]


class OwnRewards:
    """The reward functions of a stage; called with finished episodes it gives them with these rewards added."""

    def __init__(self, weights: Mapping[str, float], seconds: float = SECONDS) -> None:
        self.task_weight = weights.get(TASK, 1.0)
        self.specs = {short_name(spec): spec for spec in weights if spec != TASK}
        self.weights = {name: weights[spec] for name, spec in self.specs.items()}
        self.functions: dict[str, Callable[[Episode], Any]] = {
            name: load_outside(spec) for name, spec in self.specs.items()
        }
        self.seconds = seconds
        self.worked: set[str] = set()

    def __call__(self, episodes: Sequence[Episode], between: Callable[[], None] = lambda: None) -> list[Episode]:
        """The episodes with what the functions give; one whose environment failed stays as it is."""
        found = self._ask(episodes, between)
        for name in self.functions:
            self._check(name, [results[name] for results in found.values()])
        return [self._graded(each, found[place]) if place in found else each for place, each in enumerate(episodes)]

    def _ask(self, episodes: Sequence[Episode], between: Callable[[], None]) -> dict[int, dict[str, Any]]:
        """What each function returned or raised, by episode; calls are beside one another, each within its deadline."""
        found: dict[int, dict[str, Any]] = {place: {} for place, each in enumerate(episodes) if not each.failed}
        missing = len(found) * len(self.functions)
        with BackgroundWork[tuple[int, str]]() as beside:
            for place in found:
                for name, function in self.functions.items():
                    beside.begin((place, name), partial(_outcome, function, episodes[place]), self.seconds, name)
            while missing:
                between()
                for (place, name), result, failure in beside.ended(WAIT_SECONDS):
                    missing -= 1
                    found[place][name] = TimeoutError() if failure is not None else result
        return found

    def _check(self, name: str, results: Sequence[Any]) -> None:
        """End the run for what is not an answer's doing."""
        raised = [each for each in results if isinstance(each, RAISED)]
        numbers = [each for each in results if not isinstance(each, RAISED)]
        for value in numbers:
            if not isinstance(value, Real) or not math.isfinite(value):
                fix = "return a finite number for every episode, 0.0 for an answer that earns nothing"
                raise CheckFailed(f"the reward {name} is {value!r}, not a number", place=self.specs[name], fix=fix)
        if numbers:
            self.worked.add(name)
        for error in raised:
            if not isinstance(error, (*OF_ANSWERS, TimeoutError, EnvironmentFailed)):
                raise self._failure(name, error, "") from error
        broken = [each for each in raised if isinstance(each, OF_ANSWERS)]
        if broken and len(broken) == len(results) and name not in self.worked:
            raise self._failure(name, broken[0], f" for each of the first {len(broken)} answers") from broken[0]

    def _failure(self, name: str, error: BaseException, when: str) -> CheckFailed:
        spec = self.specs[name]
        return CheckFailed(
            f"the reward {name} raised {type(error).__name__}{when}: {error}",
            place=raised_at(error, spec),
            fix="return a number for every episode: 0.0 for an answer that cannot be read",
        )

    def _graded(self, episode: Episode, results: Mapping[str, Any]) -> Episode:
        failed = next((each for each in results.values() if isinstance(each, EnvironmentFailed)), None)
        if failed is not None:
            score = Score(0.0, False, False, error=failed.problem, failed=failed.part or "verifier")
            return replace(episode, ended="error", score=score)
        values = {name: 0.0 if isinstance(each, Exception) else float(each) for name, each in results.items()}
        score, detail = episode.score, dict(episode.score.detail)
        for each in results.values():
            if isinstance(each, Exception):
                what = "answers_too_slow" if isinstance(each, TimeoutError) else "answers_unreadable"
                detail[what] = detail.get(what, 0.0) + 1.0
        total = self.task_weight * score.reward + sum(self.weights[name] * value for name, value in values.items())
        rewards = {**score.rewards, **values}
        return replace(episode, score=replace(score, reward=total, detail=detail, rewards=rewards))


async def _outcome(function: Callable[[Episode], Any], episode: Episode) -> Any:
    """What a function returns, or what it raises."""
    try:
        if inspect.iscoroutinefunction(function):
            return await function(episode)
        return await asyncio.to_thread(function, episode)
    except RAISED as error:  # code of the user's, which may raise anything
        return error
