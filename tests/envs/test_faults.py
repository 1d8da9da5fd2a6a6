"""Hundreds of episodes in which everything goes wrong now and then: nothing is lost, nothing hangs, nothing is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ingot.envs.environment import Environment, reward
from ingot.envs.episode import Episode
from ingot.envs.errors import EnvironmentFailed
from ingot.envs.rollout.background import BackgroundWork
from ingot.envs.rollout.episode_run import Limits
from ingot.envs.rollout.probes import Scripted
from ingot.envs.rollout.rollout import rollouts
from ingot.envs.task import Task
from ingot.envs.tools.children import end_idle_children
from ingot.envs.tools.tool import make_tool
from ingot.envs.verifiers.math.same_answer import same_answer
from ingot.sandbox.pool import Pool
from ingot.sandbox.program import Limits as ProgramLimits
from ingot.sandbox.program import Program
from ingot.sandbox.run import isolation
from ingot.sandbox.worker import SandboxError
from ingot.tokens.chat import Message, ToolCall
from tests.envs.fragile import fragile
from tests.envs.rollout.test_rollout import CHAT
from tests.making.processes import wait_until
from tests.slow import first_fast

GROUP = 4
FAULTS = (
    "none",
    "tool raises",
    "tool hangs",
    "child dies",
    "verifier dies",
    "sandbox killed",
    "judge hangs",
    "setup fails",
)
FAILING = {
    "verifier dies": "verifier",
    "sandbox killed": "sandbox",
    "judge hangs": "verifier",
    "setup fails": "environment",
}
"""What is said to have failed."""


async def ask(what: str) -> str:
    """Answers, raises or hangs."""
    if what == "tool raises":
        raise ValueError("no")
    if what == "tool hangs":
        await asyncio.sleep(600)
    return "fine"


class Faulty(Environment):
    """Each task has a fault of its own; some faults are the environment's, and have no reward."""

    tools = (make_tool(ask, deadline=0.05), make_tool(fragile))
    pool: Any = None

    def draw(self, rng: random.Random) -> Task:
        rare = rng.random() < 0.2
        fault = rng.choice(FAULTS[1:]) if rare else "none"
        return self.ask(f"{rng.random()}", "42", thinking=False, asked=(fault,))

    def setup(self, task: Task) -> dict[str, bool]:
        if task.asked[0] == "setup fails":
            raise OSError("no room")
        return {"open": True}

    def teardown(self, state: dict[str, bool]) -> None:
        assert state.pop("open")

    @reward()
    def correct(self, episode: Episode) -> float:
        fault = episode.task.asked[0]
        if fault == "verifier dies":
            raise MemoryError("the verifier died")
        return float(same_answer(episode.answer, episode.task.answer))

    @reward(weight=0.0)
    async def judged(self, episode: Episode) -> float:
        if episode.task.asked[0] == "judge hangs":
            await asyncio.sleep(600)
        if episode.task.asked[0] == "sandbox killed":
            try:
                await asyncio.to_thread(self.kill_a_sandbox)
            except SandboxError as error:
                raise EnvironmentFailed(error.problem, part="sandbox") from error
        return 1.0

    def kill_a_sandbox(self) -> None:
        """Run a program and kill its sandbox from outside while it runs."""
        before = set(sandboxes())

        def kill() -> None:
            until, found = time.monotonic() + 5, list[int]()
            while not found and time.monotonic() < until:
                time.sleep(0.02)
                found = children(set(sandboxes()) - before)
            for each in found:
                os.kill(each, signal.SIGKILL)

        killer = threading.Timer(0.2, kill)
        with Pool(workers=2) as pool:
            killer.start()
            pool.run(Program(source="import time; time.sleep(30)"), ProgramLimits(seconds=20))
        killer.join()


def sandboxes() -> list[int]:
    """The processes of bubblewrap that any thread of this one started."""
    return children({os.getpid()}, "bwrap")


def children(parents: set[int], name: str = "") -> list[int]:
    """The processes that these started, if they are called so."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            head, _, rest = stat.read_text().rpartition(") ")
            if name in head and int(rest.split()[1]) in parents:
                found.append(int(head.split()[0]))
    return found


def play(episode: Episode) -> Message:
    fault = episode.task.asked[0]
    tool = "fragile" if fault == "child dies" else "ask"
    if episode.turns == 0 and fault != "none":
        return Message("assistant", "", tool_calls=[ToolCall(tool, {"what": fault})])
    return Message("assistant", "42")


@pytest.mark.parametrize("episodes", first_fast([240, 1000]))
def test_many_episodes_with_faults(episodes: int) -> None:
    isolation()  # tried by a sandbox of its own, which is not to be killed
    environment, threads, others = Faulty(), threading.active_count(), set(sandboxes())
    tasks = environment.generate(0, episodes // GROUP, "train")
    limits = Limits(200, 4000, 3, hook_seconds=5, judge_seconds=10)
    began = time.monotonic()
    groups = list(
        rollouts(tasks, Scripted(play, CHAT), CHAT, {"faulty": environment}, group=GROUP, at_once=64, limits=limits)
    )
    assert time.monotonic() - began < 300
    assert {group[0].task.id for group in groups} == {task.id for task in tasks}, "nothing is lost"
    assert all(len(group) == GROUP for group in groups)
    seen: Counter[str] = Counter()
    for episode in (episode for group in groups for episode in group):
        fault = episode.task.asked[0]
        seen[fault] += 1
        answers = [message.content for message in episode.messages if message.role == "tool"]
        assert episode.failed == (fault in FAILING), (fault, episode.score)
        assert episode.score.failed == FAILING.get(fault)
        assert episode.score.reward == (0 if fault in FAILING else 1)
        assert (episode.ended == "error") == episode.failed and episode.state is None
        expected = {
            "tool raises": ["error: ValueError: no"],
            "tool hangs": ["error: no answer in 0.05 seconds"],
            "child dies": ["error: the tool's process ended"],
        }
        assert fault not in expected or answers == expected[fault]
    assert set(seen) == set(FAULTS) and sum(seen.values()) == episodes
    end_idle_children()
    wait_until(lambda: threading.active_count() <= threads)
    assert not set(sandboxes()) - others, "no sandbox outlives its episode"


def test_work_that_exits_has_failed_and_ends_no_thread() -> None:
    """As argparse exits in a hook; the loop's thread would end with it, and every wait for it would be endless."""

    async def leave() -> None:
        raise SystemExit(2)

    async def answer() -> int:
        return 4

    arrived: list[Any] = []
    with BackgroundWork[str]() as work:
        for owner, function in (("exits", leave), ("answers", answer)):
            work.begin(owner, function, 30, owner)
            arrived += work.ended(10)
    (exits, answers) = arrived
    assert exits[0] == "exits" and str(exits[2]) == "exits raised SystemExit: 2"
    assert answers == ("answers", 4, None)
