"""A trial of an environment: what policies earn in it, how long its parts take, and what leaks.

tools     one that raises whatever it is called with
leaks     a reference answer that stands in its own prompt; a train question that is also a test question; the same question
          twice; and threads that are left afterwards
"""

from __future__ import annotations

import json
import re
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ingot.envs.environment import Environment
from ingot.envs.episode import Episode
from ingot.envs.rollout.episode_run import Limits
from ingot.envs.rollout.policies import MessagePolicy, Policy
from ingot.envs.rollout.probes import DRAWN, Scripted
from ingot.envs.rollout.rollout import PLAIN, Drawing, rollout
from ingot.envs.task import Split, Task, plain_prompt
from ingot.envs.tools.drawn import answers_by_tool, parameters, takes_text
from ingot.tokens.chat import ChatFormat
from ingot.workspace.errors import DataError

LONG_ANSWER = 4  # characters: a shorter answer stands in a prompt by chance
SETTLE_SECONDS = 10.0  # for threads and children to end
RIGHT, CONSTANT = "scripted", "one answer"
IGNORANT = ("nothing", "form only", "the question", "random words")
SHOWN = 200  # characters of a call
NO_ANSWER = "error: no answer in "
OF_TEXTS = {
    "ValueError",
    "KeyError",
    "IndexError",
    "FileNotFoundError",
    "SyntaxError",
}  # what a text that it does not know is
MOST_CONSTANT = 0.55  # share that one answer to everything may earn: two answers that are equally often


@dataclass(frozen=True)
class Earned:
    """What one policy earned."""

    policy: str
    episodes: int
    solved: float
    reward: float
    spread: float  # standard deviation of the reward between episodes
    within: float | None  # … between the samples of a task, on average: what RL learns from
    failed: int
    errors: tuple[str, ...]  # the first few, each once
    ended: Mapping[str, int]
    turns: float
    seconds: Mapping[str, float]  # of an episode, on average


@dataclass
class EnvironmentTrial:
    """What was found. `problems` are reasons not to train on it."""

    tasks: int
    earned: list[Earned] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def summarise(policy: str, episodes: Sequence[Episode]) -> Earned:
    """The numbers of a policy's episodes; those whose environment failed are only counted."""
    known = [each for each in episodes if not each.failed]
    rewards = [each.score.reward for each in known]
    groups: dict[str, list[float]] = {}
    for each in known:
        groups.setdefault(each.task.id, []).append(each.score.reward)
    several = [statistics.pstdev(group) for group in groups.values() if len(group) > 1]
    parts = sorted({part for each in episodes for part in each.seconds})
    return Earned(
        policy=policy,
        episodes=len(episodes),
        solved=_mean([float(each.score.correct) for each in known]),
        reward=_mean(rewards),
        spread=statistics.pstdev(rewards) if rewards else 0.0,
        within=_mean(several) if several else None,
        failed=len(episodes) - len(known),
        errors=tuple(dict.fromkeys(each.score.error for each in episodes if each.score.error))[:3],
        ended=dict(Counter(each.ended for each in episodes)),
        turns=_mean([float(each.turns) for each in episodes]),
        seconds={part: _mean([each.seconds.get(part, 0.0) for each in episodes]) for part in parts},
    )


def try_environment(
    environment: Environment,
    chat: ChatFormat,
    policies: Callable[[Mapping[str, Environment], Sequence[Task]], Mapping[str, Policy | MessagePolicy]],
    *,
    count: int = 32,
    samples: int = 1,
    split: Split = "train",
    limits: Limits,
    drawing: Drawing = PLAIN,
    seed: int = 0,
    keep: Callable[[str, Sequence[Episode]], None] = lambda *_: None,
) -> EnvironmentTrial:
    """Let policies work on `count` tasks; `policies` makes them, when the tasks are known, `keep` gets each one's episodes."""
    environments = {environment.kind: environment}
    threads = set(threading.enumerate())
    tasks = _tasks(environment, seed, count, split)
    trial = EnvironmentTrial(len(tasks))
    tried = policies(environments, tasks)
    if RIGHT not in tried and environment.has_solutions:
        trial.notes.append("not every task has a solution, so whether right answers earn everything was not tried")
    for name, policy in tried.items():
        repeated = [task for task in tasks for _ in range(1 if isinstance(policy, Scripted) else samples)]
        done = rollout(repeated, policy, chat, environments, drawing=drawing, limits=limits)
        keep(name, done)
        earned = summarise(name, done)
        trial.earned.append(earned)
        trial.problems += _problems(earned)
        if name == DRAWN:
            _try_tools(tasks, done, trial)
    untried = sorted({tool.name for task in tasks for tool in task.tools})
    if untried and DRAWN not in tried:
        trial.notes.append(f"the tools were not tried ({', '.join(untried)}): this chat format has no calls")
    trial.notes += _leaks(environment, tasks, seed, count, trial)
    if (left := _left_behind(threads)) > 0:
        trial.problems.append(f"{left} threads are left behind")
    return trial


def _tasks(environment: Environment, seed: int, count: int, split: Split) -> list[Task]:
    """So many tasks, or all where a file has fewer."""
    rows = environment.rows(split)
    return environment.generate(seed, count if rows is None else min(count, len(rows)), split)


def _problems(earned: Earned) -> list[str]:
    """Reasons not to train on this environment."""
    found = []
    if earned.failed:
        found.append(f"{earned.policy}: {earned.failed} of {earned.episodes} episodes failed: {earned.errors[0]}")
    if earned.policy == RIGHT and earned.solved < 1:
        found.append(f"the environment's own solutions earn {earned.reward:.3f} and solve {earned.solved:.1%}")
    elif earned.policy == CONSTANT and earned.solved > MOST_CONSTANT:
        found.append(f"the same answer to every task solves {earned.solved:.1%}")
    elif earned.policy in IGNORANT and earned.solved > 0:
        found.append(f"a policy that says {earned.policy} solves {earned.solved:.1%}")
    elif earned.policy in IGNORANT and earned.reward > 0:
        found.append(f"a policy that says {earned.policy} earns {earned.reward:.3f} and solves nothing")
    return found


def _try_tools(tasks: Sequence[Task], done: Sequence[Episode], trial: EnvironmentTrial) -> None:
    """A tool that answers none of the calls that its schema allows is broken; one that reads texts may know few."""
    tools = {tool.name: tool for task in tasks for tool in task.tools}
    said: dict[str, list[tuple[str, str]]] = {name: [] for name in tools}
    for episode in done:
        for call, text in answers_by_tool(episode.messages):
            said[call.name].append((json.dumps(call.arguments, ensure_ascii=False)[:SHOWN], text))
    for name, answers in said.items():
        if not answers:
            trial.notes.append(
                f"the tool {name} was not tried: nothing can be drawn from its schema, or no call was answered"
            )
        elif all(raised(text) or text.startswith(NO_ANSWER) for _, text in answers):
            arguments, text = answers[0]
            found = (
                f"the tool {name} fails in all {len(answers)} calls drawn from its schema: {name}({arguments}): {text}"
            )
            by_text = takes_text(parameters(tools[name])) and all(raised(text) in OF_TEXTS for _, text in answers)
            (trial.notes if by_text else trial.problems).append(found)


def raised(text: str) -> str:
    """The name of the exception that a tool's answer tells of (tools/tool.py); empty if it tells of none."""
    found = re.match(r"error: (\w+): ", text)
    return found[1] if found and found[1].endswith(("Error", "Exception")) else ""


def _leaks(
    environment: Environment, tasks: Sequence[Task], seed: int, count: int, trial: EnvironmentTrial
) -> list[str]:
    notes = []
    shown = [
        task
        for task in tasks
        if len(task.answer) >= LONG_ANSWER and any(task.answer in message.content for message in task.messages)
    ]
    if shown:
        notes.append(f"{len(shown)} of {len(tasks)} reference answers stand in their own prompts, as in {shown[0].id}")
    repeated = len(tasks) - len({task.id for task in tasks})
    if repeated:
        notes.append(f"{repeated} of {len(tasks)} questions are asked twice: there are few of them")
    try:
        train, test = (_tasks(environment, seed, count, split) for split in ("train", "test"))
    except DataError as error:
        notes.append(f"the splits were not compared: {error.problem}")
        return notes
    common = {plain_prompt(task) for task in train} & {plain_prompt(task) for task in test}
    if common:
        trial.problems.append(f"{len(common)} questions are both train and test questions")
    return notes


def _left_behind(before: set[threading.Thread]) -> int:
    """Threads that have not ended; idle ones take a moment."""
    stop = time.monotonic() + SETTLE_SECONDS
    while (left := set(threading.enumerate()) - before) and time.monotonic() < stop:
        time.sleep(0.02)
    return len(left)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
