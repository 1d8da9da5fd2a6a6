"""An environment of `verifiers` 0.4 (Prime Intellect) as a task kind: its tasks, agents, tools and rewards, our policy.

    verifiers: {environment: my_env.py, python: .venv-verifiers/bin/python, options: {taskset: {split: train}}}

`verifiers` wants older versions of `openai` and `mcp` than Ingot, so it stands in a virtual environment of its own, whose Python
plays the episodes (`_verifiers_child.py`). When an agent asks its model for a turn, the request comes here, our policy writes the
turn, and the agent reads what it says (external.py): tokens and log-probabilities are the engine's, and nothing is encoded twice.

Rewards are those of the environment, by name; its weighted sum is the reward, its metrics are measures. An environment that
raises, whose process dies, or that leaves a reward unscored makes the episode *failed*, which is no zero. A task is solved if its
reward `correct` is at least 1, or without one, if all are. Temperature and limits are those of the stage; a smaller `max_tokens`
of an agent is kept.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from ingot.envs.environment import SOLVES
from ingot.envs.episode import UNSCORED, Episode, Score
from ingot.envs.errors import EnvironmentFailed
from ingot.envs.rollout.external import EpisodeEnd, LedEnvironment, SampledTurn, TurnRefused, TurnRequest
from ingot.envs.task import Split, Task, without_held_out
from ingot.envs.tasks._verifiers_child import ProcessTalk, VerifiersProcess, child_of
from ingot.tokens.chat import Message, ToolCall
from ingot.workspace.errors import DataError, RecipeError
from ingot.workspace.files import fingerprint


@dataclass
class Playing:
    """The state of an episode: the talk with its process, and the score when there is one."""

    talk: ProcessTalk
    task: Task
    score: Score = UNSCORED


class Verifiers(LedEnvironment):
    """An environment of verifiers, played by its own Python."""

    label: ClassVar[str] = "verifiers"
    environment: str = Field(
        "",
        description="the environment: a package that the other Python has installed, or the path of a file or package",
    )
    python: str = Field(".venv-verifiers/bin/python", description="the Python that has verifiers 0.4")
    options: dict[str, Any] = Field({}, description="the [env] block of verifiers: taskset, agent, timeout, …")
    held_out: dict[str, Any] | None = Field(
        None,
        description="options of the test tasks instead; null: tasks are split by a hash of the question, four to one",
    )
    tasks: int = Field(10_000, gt=0, description="tasks that are read at most; those of an endless taskset")
    max_turns: int | None = Field(None, gt=0, description="turns of an episode at most; null: the stage's limit")
    thinking: bool = Field(True, description="whether the model may think before it answers")
    seconds: float = Field(300.0, gt=0, description="deadline for what happens between two turns, and for scoring")
    load_seconds: float = Field(300.0, gt=0, description="deadline for loading the environment")
    unsafe: bool = Field(
        False, description="let agents run the model's commands on this machine, where verifiers has no fence for them"
    )

    # -- tasks

    def rows(self, split: Split) -> Sequence[Task]:
        """The environment's tasks, each once."""
        return self._splits[split]

    def outside(self) -> dict[str, str]:
        """The file of an environment that is given by its path."""
        path = self._path
        files = sorted(path.rglob("*.py")) if path is not None and path.is_dir() else [path] if path is not None else []
        return {f"{self.kind}/{file.name}": fingerprint(file) for file in files}

    @cached_property
    def _path(self) -> Path | None:
        path = Path(self.environment).expanduser()
        return path.resolve() if self.environment and path.exists() else None

    @cached_property
    def _splits(self) -> dict[Split, list[Task]]:
        if self.held_out is None:
            tasks = self._tasks("train", None)
            train, test = ([task for task in tasks if task.split == split] for split in ("train", "test"))
        else:
            train, test = self._tasks("train", "train"), self._tasks("test", "test")
        return {"train": without_held_out(train, test), "test": test}

    def _tasks(self, which: Split, split: Split | None) -> list[Task]:
        """The tasks of a process, each once: two that ask the same may differ in what is asked for."""
        listed: dict[str, Task] = {}
        for number, row in enumerate(self._child(which).tasks):
            messages, data = [_message(each) for each in row["messages"]], row["data"]
            if not any(message.role == "user" for message in messages):  # a user of the environment's opens the talk
                messages.append(Message("user", json.dumps(data, sort_keys=True)))
            kept = {**data, "number": number, "hash": row["hash"], "which": which}
            task = self.ask(messages, str(data.get("answer", "")), split=split, data=kept, thinking=self.thinking)
            content = sha256(f"{task.id}/{json.dumps(data, sort_keys=True)}".encode()).hexdigest()
            listed.setdefault(content, replace(task, id=f"{self.kind}-{content[:12]}"))
        if not listed:
            raise DataError("the environment has no tasks", place=self.environment, fix="check its taskset's options")
        return list(listed.values())

    def _child(self, which: Split) -> VerifiersProcess:
        """The process that has the tasks of a split."""
        if not self.environment:
            fix = "verifiers: {environment: PACKAGE_OR_PATH, python: PYTHON_THAT_HAS_VERIFIERS}"
            raise RecipeError("no environment of verifiers is named", place=f"task kind {self.kind}", fix=fix)
        path = self._path
        if path is None and self.environment.endswith((".py", "/")):
            raise RecipeError("there is no such file", place=self.environment, fix="give its path from this folder")
        options = self.held_out if which == "test" and self.held_out is not None else self.options
        name = self.environment if path is None else path.stem
        load = {"environment": name, "options": options, "most": self.tasks, "unsafe": self.unsafe}
        folders = () if path is None else (str(path.parent),)
        return child_of(self.python, folders, load, self.load_seconds)

    # -- episodes

    @property
    def lead_seconds(self) -> float:
        """The deadline between two turns."""
        return self.seconds

    @property
    def most_turns(self) -> int | None:
        """Those of the option."""
        return self.max_turns

    def setup(self, task: Task) -> Playing:
        """A talk with the process; one that has died is started anew."""
        try:
            return Playing(self._child(task.data["which"]).talk(), task)
        except RecipeError as error:  # it loaded before: what fails now is the environment, not the recipe
            raise EnvironmentFailed(error.problem, place=error.place) from error

    def teardown(self, state: Playing) -> None:
        """End the talk."""
        state.talk.close()

    async def lead(self, state: Playing, answer: SampledTurn | TurnRefused | None) -> TurnRequest | EpisodeEnd:
        """Hand the process its answer; what it asks next, or how it ended."""
        data = state.task.data
        line = {"play": data["number"], "hash": data["hash"]} if answer is None else _line(answer)
        told = await asyncio.wrap_future(await asyncio.to_thread(state.talk.send, line))
        if "ask" in told:
            asked = told["ask"]
            messages = tuple(_message(each) for each in asked["messages"])
            return TurnRequest(messages, tuple(asked["tools"]), asked["agent"], asked["most"])
        ended = told["end"]
        if "error" in ended:
            raise EnvironmentFailed(ended["error"])
        state.score = _score(ended)
        return EpisodeEnd(ended["agent"], ended["stopped"])

    async def judge(self, episode: Episode) -> Score:
        """The environment's own score."""
        well_formed = not any(message.problems for message in episode.messages)
        score: Score = episode.state.score
        return replace(score, format_ok=well_formed)

    def score_at_once(self, task: Task, messages: Sequence[Message]) -> Score | None:
        """The score comes with the end of the episode."""
        return None

    def score(self, task: Task, messages: Sequence[Message]) -> Score:
        """Only an episode that was played has one."""
        raise DataError(
            "an environment of verifiers scores what is played in it, and no other conversation",
            place=f"task kind {self.kind}",
            fix="use it in rl, distill or eval",
        )


def _score(ended: Mapping[str, Any]) -> Score:
    rewards = {name: float(score) for name, (score, _) in ended["rewards"].items()}
    counted = [rewards[name] for name, (_, weight) in ended["rewards"].items() if weight > 0]
    solved = rewards[SOLVES] >= 1 if SOLVES in rewards else bool(counted) and all(value >= 1 for value in counted)
    detail = {name: float(value) for name, value in ended["metrics"].items()}
    return Score(float(ended["reward"]), solved, True, detail, rewards)


def _line(answer: SampledTurn | TurnRefused) -> dict[str, Any]:
    """An answer as the process reads it."""
    if isinstance(answer, TurnRefused):
        return {"refused": answer.limit}
    message = answer.message
    said = {
        "content": message.content,
        "thinking": message.thinking,
        "calls": [[call.name, json.dumps(call.arguments)] for call in message.tool_calls],
        "finish": "length" if answer.finish == "length" else "stop",
        "prompt_tokens": answer.prompt_tokens,
        "tokens": answer.tokens,
    }
    return {"said": said}


def _message(row: Mapping[str, Any]) -> Message:
    calls = [ToolCall(name, _arguments(text)) for name, text in row.get("calls", ())]
    return Message(row["role"], row["content"], row.get("thinking"), calls)


def _arguments(text: str) -> dict[str, Any]:
    """The arguments of a call; what is no JSON object stays as text."""
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {"arguments": text}
