"""Held-out verifiable tasks: avg@k per kind and over all, well-formedness, tool-call success, pass@k and pass^k.

Every sample of every kind is asked for at once. Samples of a task are averaged
before anything else: a metric's units are tasks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Self

from pydantic import Field, model_validator

from ingot.envs.config import TaskName, TasksConfig
from ingot.envs.environment import Environment
from ingot.envs.episode import Episode
from ingot.envs.rewards import OwnRewardName, OwnRewards, check_rewards, short_name
from ingot.envs.rollout.episode_run import Limits
from ingot.envs.tools.find import ToolName, find_tools
from ingot.evals.bases.suite import Measured, Measuring, Subject, Suite, check_top_p
from ingot.evals.engine.prompt import Form
from ingot.evals.engine.request import Play
from ingot.evals.scores.scores import Metric, Sample, metric_of_units
from ingot.evals.scores.statistics import pass_at_k, pass_hat_k, task_means
from ingot.tokens.tokenizer import Tokenizer
from ingot.workspace.config import Config
from ingot.workspace.errors import CheckFailed


class KindCount(Config):
    """Held-out tasks of one kind."""

    kind: TaskName = Field(description="the task kind: a name, or file.py:Name")
    count: int = Field(64, ge=2, description="how many held-out tasks; the standard error is over tasks")


class KindConfig(KindCount):
    """Held-out tasks of one kind, and how often each is answered."""

    samples: int = Field(1, ge=1, description="samples per task (k of avg@k)")


class Tasks(Suite):
    """Held-out tasks with verifiable answers, all kinds in one batch."""

    forms: ClassVar[tuple[Form, ...]] = ("chat",)

    kinds: tuple[KindConfig, ...] = Field(
        (
            KindConfig(kind="arithmetic"),
            KindConfig(kind="strings"),
            KindConfig(kind="calculator", count=32),
            KindConfig(kind="no_think", count=32),
        ),
        min_length=1,
        description="the task kinds, and how many tasks of each",
    )
    difficulty: TasksConfig = Field(TasksConfig(), description="how hard each task kind is: as in training, or harder")
    tools: tuple[ToolName, ...] = Field(
        (), description="tools that are offered beside a task's own: names, or file.py:function"
    )
    rewards: tuple[OwnRewardName, ...] = Field(
        (), description="functions of yours that grade finished episodes, file.py:brevity; the mean of each is a metric"
    )
    temperature: float = Field(0.0, ge=0, description="sampling temperature; 0 is greedy")
    top_p: float = Field(1.0, gt=0, le=1, description="nucleus sampling")
    max_new_tokens: int = Field(96, ge=1, description="tokens of one turn at most")
    max_turns: int = Field(3, ge=1, description="assistant turns of one task at most")
    kept_samples: int = Field(12, ge=0, description="replies per kind that are kept in samples.jsonl")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        kinds = [each.kind for each in self.kinds]
        if len(set(kinds)) != len(kinds):
            raise ValueError("a task kind is listed twice")
        if self.temperature == 0 and any(each.samples > 1 for each in self.kinds):
            raise ValueError("several samples per task need a temperature above 0: greedy samples are all the same")
        self.difficulty.check_asked(kinds)
        check_rewards(self.rewards, [self.difficulty.kind(kind) for kind in kinds])
        check_top_p(self, self.temperature)
        return self

    def outside(self) -> dict[str, str]:
        """The files of its tasks."""
        return self.difficulty.outside()

    def measure(self, subject: Subject) -> Measuring:
        """The metrics of all kinds, and samples of the replies."""
        limits = Limits(self.max_new_tokens, subject.max_tokens, self.max_turns)
        tools = find_tools(self.tools)
        labels: dict[str, str] = {}
        plays: list[Play] = []
        for each in self.kinds:
            kind: Environment = self.difficulty.kind(each.kind)
            labels[kind.kind] = kind.label or kind.kind
            count = each.count if subject.limit is None else min(each.count, subject.limit)
            for task in kind.generate(subject.task_seed, count, "test"):
                plays += [Play(task, kind, limits, self.temperature, self.top_p, tools)] * each.samples
        episodes = yield plays
        if self.rewards:
            episodes = OwnRewards(dict.fromkeys(self.rewards, 1.0))(episodes)
        metrics = task_metrics(episodes, labels, [short_name(spec) for spec in self.rewards])
        return Measured(metrics, kept_samples(episodes, subject.tokenizer, self.kept_samples))


def task_metrics(episodes: Sequence[Episode], labels: Mapping[str, str], rewards: Sequence[str] = ()) -> list[Metric]:
    """Accuracy and form per kind and over all; tool calls where tasks have tools; these rewards; pass@k of k samples.

    Episodes whose environment failed are no wrong answers: they are left out, and their share is a metric of its own.
    """
    metrics = []
    failed = [each for each in episodes if each.failed]
    if failed:
        metrics.append(_mean("failed", episodes, _failed, f"Environment failed ({failed[0].score.error})"))
        episodes = [each for each in episodes if not each.failed]
    if not episodes:
        raise CheckFailed(
            f"the environment failed in every episode: {failed[0].score.error}",
            place=failed[0].task.kind,
            fix="try it with `ingot env test`",
        )
    for kind, label in labels.items():
        members = [each for each in episodes if each.task.kind == kind]
        if members:
            metrics.append(_mean(f"accuracy/{kind}", members, _correct, f"Accuracy, {label}"))
            metrics.append(_mean(f"format/{kind}", members, _well_formed, f"Well formed, {label}"))
    metrics.append(_mean("accuracy/all", episodes, _correct, "Accuracy, all tasks"))
    metrics.append(_mean("format/all", episodes, _well_formed, "Well formed, all tasks"))
    callers = [each for each in episodes if "tool_call_success" in each.score.detail]
    if callers:
        metrics.append(_mean("tool_call_success", callers, _called, "Right tool call"))
    metrics += [_mean(f"reward/{name}", episodes, _reward(name), f"Reward {name}") for name in rewards]
    return metrics + _pass_metrics(episodes)


def _pass_metrics(episodes: Sequence[Episode]) -> list[Metric]:
    samples = _by_task(episodes, _correct)
    k = min(len(values) for values in samples.values())
    if k < 2:
        return []
    at, hat = {}, {}
    for task, values in samples.items():
        right = round(sum(values))
        at[task], hat[task] = pass_at_k(len(values), right, k), pass_hat_k(len(values), right, k)
    return [
        metric_of_units(f"pass@{k}/all", at, f"At least one of {k} right"),
        metric_of_units(f"pass^{k}/all", hat, f"All of {k} right"),
    ]


def kept_samples(episodes: Sequence[Episode], tokenizer: Tokenizer, per_kind: int) -> list[Sample]:
    """The first reply to each of the first tasks of every kind: the same tasks after every stage."""
    kept: dict[str, dict[str, Episode]] = defaultdict(dict)
    for each in episodes:
        if len(kept[each.task.kind]) < per_kind:
            kept[each.task.kind].setdefault(each.task.id, each)
    return [sample_of(each, each.task.kind, tokenizer) for members in kept.values() for each in members.values()]


def sample_of(episode: Episode, kind: str, tokenizer: Tokenizer) -> Sample:
    """What of an episode people read."""
    task = episode.task
    return Sample(task.id, kind, task.question, episode.reply(tokenizer), task.answer, episode.score.correct)


def _mean(name: str, members: Sequence[Episode], value: Callable[[Episode], float], label: str) -> Metric:
    return metric_of_units(name, task_means(_by_task(members, value)), label)


def _by_task(members: Sequence[Episode], value: Callable[[Episode], float]) -> dict[str, list[float]]:
    samples: dict[str, list[float]] = defaultdict(list)
    for each in members:
        samples[each.task.id].append(value(each))
    return samples


def _failed(episode: Episode) -> float:
    return float(episode.failed)


def _correct(episode: Episode) -> float:
    return float(episode.score.correct)


def _well_formed(episode: Episode) -> float:
    return float(episode.score.format_ok)


def _reward(name: str) -> Callable[[Episode], float]:
    return lambda episode: episode.score.rewards[name]


def _called(episode: Episode) -> float:
    return episode.score.detail["tool_call_success"]
