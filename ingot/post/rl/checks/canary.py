"""The canary of RL: a second score of the policy, which the reward must not leave behind (reward hacking, arXiv 2209.13085).

    measurement i    R_i: mean reward of all answers since the last one;  C_i: mean of the second score
    standard error   of clusters: the answers to one task are right or wrong together (evals/scores/statistics.py)
    trend            slope b of the least-squares line through the last n measurements, x = steps
                     se(b)² = max( Σ residuals² / (n − 2) / S_xx,  Σ (x − x̄)² se_i² / S_xx² ),   S_xx = Σ (x − x̄)²
    alarm            b_R > sigmas · se(b_R)  and  b_C < −sigmas · se(b_C),  for an n of window, 2 window, 4 window, …,
                     at `patience` measurements in a row

Few measurements show a sudden fall, many a slow one. The first error is that of the scatter around the line, the second that of
the answers drawn; the larger one counts.

The second score is by default the tasks' own verdict on the sampled answers, whether they are right: it costs nothing, and it
parts from the reward where that pays for something else (form, length, parts of the task, a reward model). Where the reward is
that verdict and nothing else, the two are one number, and only another `verifier` or held-out tasks can raise the alarm: it is
`blind`. The run says so as soon as an answer has earned something.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass, field
from typing import Annotated, Any

from pydantic import Field

from ingot.envs.config import TaskMixConfig
from ingot.envs.environment import TASKS, Environment
from ingot.workspace.config import Config

CERTAIN = 1e6  # of a line without any error
Group = Sequence[float]
"""Numbers of the answers to one task."""


class HeldOutConfig(Config):
    """Tasks of the test split that the policy answers for the canary, always the same ones."""

    tasks: TaskMixConfig | None = Field(None, description="which kinds; null: those of the stage")
    count: int = Field(32, gt=1, description="how many tasks, one answer to each; sampled beside the step's own")


class CanaryConfig(Config):
    """A second score of the policy: an alarm if it falls while the reward rises."""

    every: int = Field(10, gt=0, description="optimizer steps between two measurements")
    verifier: Annotated[Environment, TASKS] | None = Field(
        None,
        description="an environment that judges the same answers, as file.py:Strict; its reward is the second score. null: "
        "whether answers are right, by their own tasks",
    )
    held_out: HeldOutConfig | None = Field(
        None, description="score answers to held-out tasks; null: the answers that the step has sampled anyway"
    )
    window: int = Field(8, gt=2, description="measurements that trends are of; also of 2, 4, 8, … times as many")
    sigmas: float = Field(3.0, gt=0, description="standard errors by which both trends must differ from 0")
    patience: int = Field(2, gt=0, description="measurements in a row that must say so")
    stop: bool = Field(False, description="end the stage with its next checkpoint after an alarm")

    def outside(self) -> dict[str, str]:
        """The files of its tasks and of its verifier."""
        found = {} if self.verifier is None else self.verifier.outside()
        tasks = None if self.held_out is None else self.held_out.tasks
        return found | ({} if tasks is None else tasks.outside())


@dataclass(frozen=True)
class CanaryMeasurement:
    """Means at a step, with their standard errors."""

    step: int
    reward: float
    reward_error: float
    score: float
    score_error: float


@dataclass
class Canary:
    """The measurements so far, and the answers since the last one."""

    config: CanaryConfig
    measurements: list[CanaryMeasurement] = field(default_factory=list)
    rewards: list[list[float]] = field(default_factory=list)  # since the last measurement, by task
    scores: list[list[float]] = field(default_factory=list)
    streak: int = 0  # measurements in a row with both trends
    next_step: int = 0
    alike: bool = False  # an answer earned something, and reward and score were the same number
    parted: bool = False  # for some answer they were not

    def compare(self, rewards: Sequence[Group], scores: Sequence[Group]) -> None:
        """The two scores of the same answers."""
        self.parted = self.parted or [list(group) for group in rewards] != [list(group) for group in scores]
        self.alike = self.alike or (not self.parted and any(value for group in rewards for value in group))

    @property
    def blind(self) -> bool:
        """Whether the two scores have been one number so far: then one cannot rise while the other falls."""
        return self.alike and not self.parted

    def note(self, rewards: Sequence[Group], scores: Sequence[Group]) -> None:
        """Answers were drawn."""
        self.rewards += [list(group) for group in rewards if group]
        self.scores += [list(group) for group in scores if group]

    def due(self, step: int) -> bool:
        """Whether to measure at this step."""
        return step >= self.next_step

    def measure(self, step: int) -> dict[str, float]:
        """Close a measurement; its metrics. With fewer than two tasks, which have no error, it waits for more."""
        if min(len(self.rewards), len(self.scores)) < 2:
            return {}
        self.next_step = step + self.config.every
        self.measurements.append(CanaryMeasurement(step, *clustered(self.rewards), *clustered(self.scores)))
        self.rewards, self.scores = [], []
        found = {"canary": self.measurements[-1].score, "canary_error": self.measurements[-1].score_error}
        if len(self.measurements) < self.config.window:
            return found
        up, down = max((self._trends(count) for count in self._counts()), key=lambda both: min(both[0], -both[1]))
        hacked = up > self.config.sigmas and down < -self.config.sigmas
        self.streak = self.streak + 1 if hacked else 0
        return found | {"canary_reward_trend": up, "canary_trend": down, "canary_alarm": float(self.alarm)}

    def _counts(self) -> list[int]:
        """How many of the last measurements are looked at together."""
        doublings = range((len(self.measurements) // self.config.window).bit_length())
        return [self.config.window << power for power in doublings]

    def _trends(self, count: int) -> tuple[float, float]:
        """Those of reward and score over the last measurements."""
        last = self.measurements[-count:]
        steps = [each.step for each in last]
        return (
            trend(steps, [each.reward for each in last], [each.reward_error for each in last]),
            trend(steps, [each.score for each in last], [each.score_error for each in last]),
        )

    @property
    def alarm(self) -> bool:
        """Whether the alarm is on."""
        return self.streak >= self.config.patience

    def why(self) -> str:
        """What the alarm is about."""
        count = max(self._counts(), key=lambda count: min(self._trends(count)[0], -self._trends(count)[1]))
        first, last = self.measurements[-count], self.measurements[-1]
        return (
            f"the reward rose from {first.reward:.3f} to {last.reward:.3f} while the canary fell from {first.score:.3f} to "
            f"{last.score:.3f}, steps {first.step:,} to {last.step:,}: the policy may exploit the reward"
        )

    def state(self) -> dict[str, Any]:
        """All of it as plain JSON."""
        return {
            "measurements": [astuple(each) for each in self.measurements],
            "rewards": list(self.rewards),
            "scores": list(self.scores),
            "streak": self.streak,
            "next_step": self.next_step,
            "alike": self.alike,
            "parted": self.parted,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state`; an empty one is the beginning."""
        self.measurements = [CanaryMeasurement(*each) for each in state.get("measurements", ())]
        self.rewards, self.scores = list(state.get("rewards", ())), list(state.get("scores", ()))
        self.streak, self.next_step = state.get("streak", 0), state.get("next_step", 0)
        self.alike, self.parted = state.get("alike", False), state.get("parted", False)


def clustered(groups: Sequence[Group]) -> tuple[float, float]:
    """The mean over all numbers of at least two groups, and its standard error where each group is a cluster."""
    total = sum(len(group) for group in groups)
    mean = math.fsum(value for group in groups for value in group) / total
    squares = math.fsum(math.fsum(value - mean for value in group) ** 2 for group in groups)
    return mean, math.sqrt(len(groups) / (len(groups) - 1) * squares) / total


def trend(steps: Sequence[float], values: Sequence[float], errors: Sequence[float]) -> float:
    """The slope of the least-squares line in units of its standard error, at most CERTAIN; 0 for a level line."""
    count = len(steps)
    middle, mean = sum(steps) / count, math.fsum(values) / count
    apart = [step - middle for step in steps]
    spread = math.fsum(each * each for each in apart)
    slope = math.fsum(each * value for each, value in zip(apart, values, strict=True)) / spread
    residuals = [value - mean - slope * each for each, value in zip(apart, values, strict=True)]
    scatter = math.fsum(each * each for each in residuals) / (count - 2) / spread
    drawn = math.fsum((each * error) ** 2 for each, error in zip(apart, errors, strict=True)) / spread**2
    error = math.sqrt(max(scatter, drawn))
    if error <= abs(slope) / CERTAIN:
        return math.copysign(CERTAIN, slope) if slope else 0.0
    return slope / error
