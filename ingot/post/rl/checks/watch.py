"""Watches a run of RL with its canary (canary.py): scores what was sampled, says so when it sings, asks the stage to end.

STAGE/canary.json     {"step": 130, "why": "the reward rose from …"}, of the first alarm
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ingot.envs.config import TaskMixConfig
from ingot.envs.environment import Environment
from ingot.envs.episode import Episode
from ingot.envs.second_opinion import second_opinions
from ingot.envs.task import Task
from ingot.post.barrier import Between
from ingot.post.processes import Processes
from ingot.post.rl.checks.canary import Canary, CanaryConfig
from ingot.post.samplers.listed import ListedTasks
from ingot.train.saving.early_end import ask_to_end
from ingot.workspace.files import read_json, write_json
from ingot.workspace.stage import StageFolder

ALARM = "canary.json"
BLIND = (
    "it is blind: for every answer so far the reward is the second score itself, so that one cannot rise while the other falls. "
    "Let it see tasks of the test split (canary: {held_out: {count: 32}}), or the same answers by a stricter verifier (canary: "
    "{verifier: strict.py:Strict})"
)
Sample = Callable[[Sequence[Task], Mapping[str, Environment]], list[Episode]]
"""Scored answers of the policy as it is, one to each task."""


class Watch:
    """The canary of a stage. All processes call each method with the same answers."""

    def __init__(
        self, config: CanaryConfig, tasks: TaskMixConfig, group: int, folder: StageFolder, processes: Processes
    ) -> None:
        self.config, self.group, self.folder, self.processes = config, group, folder, processes
        self.canary = Canary(config)
        self.verifier: Environment | None = config.verifier
        self.listed: ListedTasks | None = None
        if config.held_out is not None:
            self.listed = ListedTasks(config.held_out.tasks or tasks, folder.seed, config.held_out.count, "test")
        self.held_out = None if self.listed is None else self.listed.make()

    def observe(
        self, step: int, episodes: Sequence[Episode], reward: Callable[[Episode], float], sample: Sample
    ) -> dict[str, float]:
        """Note what was drawn at a step, and measure if it is time; metrics."""
        earned = self._by_task([None if each.failed else reward(each) for each in episodes], self.group)
        due = self.canary.due(step)
        if self.held_out is None:
            scores = self._by_task(self._scores(episodes), self.group)
            self.canary.note(earned, scores)
            known = self.canary.blind
            self.canary.compare(earned, scores)
            if self.canary.blind and not known:
                self.processes.once(lambda: self.folder.progress.say(f"canary: {BLIND}"))
        else:
            self.canary.note(earned, [])
            if due:
                answered = sample(*self.held_out)
                self.canary.note([], self._by_task(self._scores(answered), 1))
        if not due:
            return {}
        metrics = self.canary.measure(step)
        if metrics.get("canary_alarm"):
            self._alarm(step)
        return metrics

    def _scores(self, episodes: Sequence[Episode]) -> list[float | None]:
        """The second score of every answer."""
        verifier = self.verifier
        if verifier is None:
            return [None if each.failed else float(each.score.correct) for each in episodes]

        def judge_run(run: slice, between: Between) -> list[float | None]:
            return second_opinions(verifier, episodes[run], between)

        return self.processes.share(len(episodes), judge_run)

    def _by_task(self, values: Sequence[float | None], group: int) -> list[list[float]]:
        starts = range(0, len(values), group)
        return [[value for value in values[start : start + group] if value is not None] for start in starts]

    def _alarm(self, step: int) -> None:
        why = self.canary.why()

        def tell() -> None:
            if self.canary.streak == self.config.patience:  # it says so once, not at every measurement after it
                ending = "; the stage ends with its next checkpoint" if self.config.stop else ""
                self.folder.progress.say(f"canary, step {step:,}: {why}{ending}")
            if not (self.folder.path / ALARM).exists():
                write_json(self.folder.path / ALARM, {"step": step, "why": why})
            if self.config.stop:
                ask_to_end(self.folder.path, f"canary: {why}")

        self.processes.once(tell)

    def told(self) -> dict[str, Any]:
        """For the stage's summary: the first alarm, or that there could not be one."""

        def read() -> dict[str, Any]:
            path = self.folder.path / ALARM
            first = read_json(path) if path.exists() else None
            if first is None:
                return {"canary": BLIND} if self.canary.blind else {}
            return {"canary_alarm": first["step"], "canary": first["why"]}

        return self.processes.once(read)

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint; an alarm of steps that run again is forgotten."""
        self.canary.restore(state)

        def forget() -> None:
            path = self.folder.path / ALARM
            if path.exists() and read_json(path)["step"] >= self.canary.next_step:
                path.unlink()

        self.processes.once(forget)
