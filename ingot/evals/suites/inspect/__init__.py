"""A task of Inspect (inspect-ai), answered by our engine:

    {suite: inspect, task: "my_task.py:arithmetic", limit: 200}
    {suite: inspect, task: "inspect_evals.gsm8k:gsm8k", arguments: {fewshot: 0}}

Samples, solvers and scorers are the task's own (inspect_task.py). A sample that is asked in several epochs counts as the mean of
its scores; a metric is the mean over samples, as Inspect's `accuracy` and `mean` are.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from pydantic import Field, field_validator

from ingot.evals.bases.identity import unique
from ingot.evals.bases.suite import Measured, Measuring, Subject, Suite
from ingot.evals.scores.scores import KEPT_SAMPLES, Sample, metric_of_units
from ingot.evals.scores.statistics import task_means
from ingot.evals.suites.inspect.inspect_task import Options, drive, load_task, scorer_names, solve
from ingot.workspace.errors import DataError
from ingot.workspace.outside import is_outside


class Inspect(Suite):
    """Any task of Inspect that asks the model alone."""

    task: str = Field(min_length=1, description="file.py:name or package.module:name of a @task function")
    arguments: dict[str, Any] = Field({}, description="arguments of the function")
    limit: int | None = Field(None, ge=1, description="only the first samples, so many")
    epochs: int | None = Field(None, ge=1, description="how often each sample is asked; null: as the task says")
    max_new_tokens: int = Field(1024, ge=1, description="tokens of an answer, where the task does not say it")
    temperature: float = Field(0.0, ge=0, description="of sampling, where the task does not say it")

    @field_validator("task")
    @classmethod
    def _spec(cls, value: str) -> str:
        if not is_outside(value):
            raise ValueError("write file.py:name or package.module:name, with the name of a @task function")
        return value

    def measure(self, subject: Subject) -> Measuring:
        """Drive the task's solvers with the model's answers, and let its scorers score them."""
        task = load_task(self.task, self.arguments)
        limits = [limit for limit in (self.limit, subject.limit) if limit is not None]
        samples = list(task.dataset)[: min(limits, default=None)]
        options = Options(self.max_new_tokens, self.temperature, subject.form == "chat")
        epochs = range(1, (self.epochs or task.epochs or 1) + 1)
        ids = unique(str(each.id if each.id is not None else at + 1) for at, each in enumerate(samples))
        asked = [(at, epoch) for at in range(len(samples)) for epoch in epochs]
        works = [solve(task, samples[at], at, epoch, options) for at, epoch in asked]
        results = yield from drive(works, self.task)
        name = self.task.rpartition(":")[2]
        metrics = []
        for number, scorer in enumerate(scorer_names(task)):
            values: dict[str, list[float]] = defaultdict(list)
            for (at, _), (_, scores) in zip(asked, results, strict=True):
                values[ids[at]].append(_number(scores[number], f"{self.task}, {scorer}"))
            label = f"Inspect {name}, {scorer}"
            metrics.append(metric_of_units(f"inspect/{name}/{scorer}", task_means(values), label))
        return Measured(metrics, [_sample(name, ids[at], *found) for (at, _), found in _first(asked, results)])


def _number(score: Any, place: str) -> float:
    """A score's value as Inspect's metrics read it."""
    from inspect_ai.scorer import value_to_float

    if score is None or not isinstance(score.value, str | int | float):
        raise DataError("the scorer gives no single value", place=place, fix="use a scorer that gives one")
    return value_to_float()(score.value)


def _first(asked: list[tuple[int, int]], results: list[Any]) -> list[tuple[tuple[int, int], Any]]:
    return [pair for pair in zip(asked, results, strict=True) if pair[0][1] == 1][:KEPT_SAMPLES]


def _sample(name: str, id: str, state: Any, scores: list[Any]) -> Sample:
    right, said = _number(scores[0], name) >= 1, state.output.completion
    return Sample(f"{name}-{id}", f"inspect/{name}", state.input_text, said, state.target.text, right)
