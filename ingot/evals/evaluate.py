"""The stage `eval`: measure one model with all suites together, and write its scores.

Which tasks and texts are asked depends on `task_seed` alone, so that all checkpoints of a recipe meet the same ones and are
compared pairwise; only sampling (temperature above 0) depends on the stage's seed. Answers are remembered beside the stages of
a run (memory.py), so that a stage that was killed goes on where it was. The scores are in the order of the recipe. With `every`
the checkpoints that the training stage has kept are measured first (every.py), and become a history.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ingot.evals.bases.suite import Measured, Subject, Suite
from ingot.evals.config import EvalConfig
from ingot.evals.engine.answer import Answerer, measure_together
from ingot.evals.engine.open_subject import open_subject
from ingot.evals.scores.contamination import Leaked, leaked_rows, with_parts
from ingot.evals.scores.every import Scored, measure_history
from ingot.evals.scores.scores import Metric, save_scores
from ingot.workspace.errors import RecipeError
from ingot.workspace.progress import Pace
from ingot.workspace.stage import StageFolder

MODES: Mapping[str, Mapping[str, bool | None]] = {
    "task": {"": None},
    "on": {"": True},
    "off": {"": False},
    "both": {"think": True, "no_think": False},
}


def run(config: EvalConfig, inputs: Mapping[str, Path], folder: StageFolder) -> dict[str, Any]:
    """Measure the model; makes scores. The summary holds every metric's value."""

    def score_checkpoint(path: Path) -> Scored:
        return score(config, {**inputs, "checkpoint": path}, folder)

    summary: dict[str, Any] = {}
    if config.every is None:
        metrics, samples = score(config, inputs, folder)
    else:
        metrics, samples, summary = measure_history(inputs["checkpoint"], config.every, folder, score_checkpoint)
    save_scores(folder.artifact("scores"), metrics, samples)
    return {metric.name: metric.estimate.value for metric in metrics} | summary


def score(config: EvalConfig, inputs: Mapping[str, Path], folder: StageFolder) -> Scored:
    """The metrics and samples of one model."""
    leaked = leaked_rows(inputs["documents"]) if "documents" in inputs else {}
    with open_subject(config, inputs, folder) as (subject, answerer):
        found = measure(config.suites, subject, answerer, folder, MODES[config.thinking], leaked)
    metrics = [metric for each in found for metric in each.metrics]
    _check_names(metrics)
    return metrics, [sample for each in found for sample in each.samples]


def measure(
    suites: Sequence[Suite],
    subject: Subject,
    answerer: Answerer,
    folder: StageFolder,
    modes: Mapping[str, bool | None],
    leaked: Leaked | None = None,
) -> list[Measured]:
    """What each suite found, in each mode of thinking, with its parts where rows have leaked."""
    asked = [
        (suite, mode, replace(subject, thinking=thinking))
        for suite in suites
        for mode, thinking in (modes if _thinks(suite, subject) else MODES["task"]).items()
    ]
    found = {number: suite.measure(each) for number, (suite, _, each) in enumerate(asked)}
    at_once = {number: each for number, each in found.items() if isinstance(each, Measured)}
    asking = {number: each for number, each in found.items() if not isinstance(each, Measured)}

    started, pace = 0, Pace()

    def show(done: int, count: int) -> None:
        nonlocal started
        if count != started:
            folder.progress.start(count, "answer", done)
            started = count
        if count:  # else no suite asks anything
            # answers may take minutes: what moves meanwhile is their tokens
            speed = {"tokens/s": pace.of(answerer.tokens)} if answerer.tokens else {}
            folder.progress.advance(done, **speed)

    together = [(each, asked[number][2]) for number, each in asking.items()]
    measured = at_once | dict(zip(asking, measure_together(together, answerer, show), strict=True))
    return [
        _named(with_parts(measured[number], suite, each, leaked or {}), suite, mode)
        for number, (suite, mode, each) in enumerate(asked)
    ]


def _thinks(suite: Suite, subject: Subject) -> bool:
    """Whether the model can think before it answers this suite."""
    return suite.can_think and (subject.form == "chat" or "text" not in suite.forms)


def _named(measured: Measured, suite: Suite, mode: str) -> Measured:
    """With the suite's name and the mode of thinking before the metrics' names, and the suite's mark on them."""
    before = [each for each in (mode, suite.name) if each]
    metrics = [
        replace(
            each,
            name="/".join([*before, each.name]),
            label=f"{each.label} ({', '.join(before)})" if before else each.label,
            held_out=each.held_out and suite.held_out,
        )
        for each in measured.metrics
    ]
    samples = [replace(each, mode=mode) for each in measured.samples] if mode else measured.samples
    return Measured(metrics, samples)


def _check_names(metrics: Sequence[Metric]) -> None:
    """Fail if two suites have measured something of the same name: one would hide the other."""
    names = [metric.name for metric in metrics]
    if twice := [name for name in names if names.count(name) > 1]:
        raise RecipeError(
            f"two suites measure {twice[0]}", place="eval", fix="leave one out, or give one of them a name"
        )
