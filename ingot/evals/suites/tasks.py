"""Held-out verifiable tasks: avg@k per kind and over all, well-formedness, tool-call success, pass@k and pass^k.

Every sample of every kind goes through one rollout, so the engine's slots stay full. Samples of a task are averaged
before anything else: a metric's units are tasks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ingot.envs.config import Kind
from ingot.envs.rollout import rollout
from ingot.envs.task import Policy, Task
from ingot.envs.tasks.mix import task_sets
from ingot.envs.trajectory import Trajectory
from ingot.evals.config import EvalConfig
from ingot.evals.scores import Metric, metric_of_units
from ingot.evals.statistics import pass_at_k, pass_hat_k, task_means
from ingot.tokens.chat import ChatFormat
from ingot.workspace.interrupt import StopSignal

LABELS: Mapping[Kind, str] = {
    "arithmetic": "arithmetic",
    "strings": "string tasks",
    "calculator": "calculator tasks",
    "no_think": "direct questions",
}


def measure_tasks(
    config: EvalConfig, policy: Policy, chat: ChatFormat, seed: int, stop: StopSignal
) -> tuple[list[Metric], list[dict[str, Any]]]:
    """The metrics of all task suites, and samples of the replies; ends between two steps of sampling if asked to."""
    if not config.tasks:
        return [], []
    sets = task_sets(config.difficulty)
    by_kind = {suite.kind: sets[suite.kind].generate(config.task_seed, suite.count, "test") for suite in config.tasks}
    requests: list[Task] = []
    for suite in config.tasks:
        requests += [task for task in by_kind[suite.kind] for _ in range(suite.samples)]
    trajectories = rollout(
        requests,
        policy,
        chat,
        temperature=config.temperature,
        top_p=config.top_p,
        max_new_tokens=config.max_new_tokens,
        max_tokens=config.max_tokens,
        max_turns=config.max_turns,
        seed=seed,
        between=stop.check,
    )
    return task_metrics(trajectories), kept_samples(trajectories, chat, config.kept_samples)


def task_metrics(trajectories: Sequence[Trajectory]) -> list[Metric]:
    """Accuracy and form per kind and over all; tool calls where tasks have tools; pass@k where there are k samples."""
    metrics = []
    for kind, label in LABELS.items():
        members = [each for each in trajectories if each.task.kind == kind]
        if members:
            metrics.append(_mean(f"accuracy/{kind}", members, _correct, f"Accuracy, {label}"))
            metrics.append(_mean(f"format/{kind}", members, _well_formed, f"Well formed, {label}"))
    metrics.append(_mean("accuracy/all", trajectories, _correct, "Accuracy, all tasks"))
    metrics.append(_mean("format/all", trajectories, _well_formed, "Well formed, all tasks"))
    callers = [each for each in trajectories if "tool_call_success" in each.score.detail]
    if callers:
        metrics.append(_mean("tool_call_success", callers, _called, "Right tool call"))
    return metrics + _pass_metrics(trajectories)


def _pass_metrics(trajectories: Sequence[Trajectory]) -> list[Metric]:
    samples = _by_task(trajectories, _correct)
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


def kept_samples(trajectories: Sequence[Trajectory], chat: ChatFormat, per_kind: int) -> list[dict[str, Any]]:
    """The first reply to each of the first tasks of every kind: the same tasks after every stage."""
    kept: dict[str, dict[str, Trajectory]] = defaultdict(dict)
    for each in trajectories:
        if len(kept[each.task.kind]) < per_kind:
            kept[each.task.kind].setdefault(each.task.id, each)
    return [
        {
            "task_id": each.task.id,
            "kind": each.task.kind,
            "prompt": each.task.question,
            "completion": each.reply(chat.tokenizer),
            "expected": each.task.answer,
            "correct": each.score.correct,
        }
        for members in kept.values()
        for each in members.values()
    ]


def _mean(name: str, members: Sequence[Trajectory], value: Callable[[Trajectory], float], label: str) -> Metric:
    return metric_of_units(name, task_means(_by_task(members, value)), label)


def _by_task(members: Sequence[Trajectory], value: Callable[[Trajectory], float]) -> dict[str, list[float]]:
    samples: dict[str, list[float]] = defaultdict(list)
    for each in members:
        samples[each.task.id].append(value(each))
    return samples


def _correct(trajectory: Trajectory) -> float:
    return float(trajectory.score.correct)


def _well_formed(trajectory: Trajectory) -> float:
    return float(trajectory.score.format_ok)


def _called(trajectory: Trajectory) -> float:
    return trajectory.score.detail["tool_call_success"]
