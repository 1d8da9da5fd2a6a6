"""Any task of the LM evaluation harness, answered by our engine: `--suite lm_eval:TASK`, or

    {suite: lm_eval, task: gsm8k_cot, limit: 200}
    {suite: lm_eval, task: mine, include_path: my_tasks}

Rows, prompts, filters and metrics are the harness's own; see harness.py. Its tasks load their rows from the hub. A `subset` is of
the rows of one task; they are asked with the prompts that they have among all rows.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from ingot.evals.bases.file_suite import fingerprint_of
from ingot.evals.bases.suite import Measured, Measuring, Subject, Suite
from ingot.evals.engine.request import Passage
from ingot.evals.scores.scores import KEPT_SAMPLES, Metric, Sample, metric_of_units, of_equal_weight
from ingot.evals.suites.lm_eval.harness import (
    Loaded,
    TaskScores,
    build,
    load_tasks,
    output_type,
    requests_of,
    response_of,
    score,
    task_file,
)
from ingot.workspace.errors import RecipeError


class LmEval(Suite):
    """Any task of the LM evaluation harness (lm_eval:TASK)."""

    task: str = Field(min_length=1, description="a task, group or tag of lm-eval")
    include_path: str | None = Field(None, description="a folder with task files of your own")
    shots: int | None = Field(None, ge=0, description="worked examples, where the task does not fix them")
    limit: int | None = Field(None, ge=1, description="only the first rows of each task, so many")
    subset: str = Field("", description="only the rows of this file, which `ingot eval subset` makes, of a single task")

    @property
    def can_think(self) -> bool:
        """False for a task that reads whole texts. What a group or a tag asks is known when the harness has loaded it."""
        file = task_file(self.task, self.include_path)
        return file is None or output_type(file) != "loglikelihood_rolling"

    def measure(self, subject: Subject) -> Measuring:
        """Ask what the tasks ask, and let them score the answers."""
        loaded = load_tasks(self.task, self.include_path, self.shots)
        limits = [limit for limit in (self.limit, subject.limit) if limit is not None]
        limit, chat = min(limits, default=None), subject.form == "chat"
        chosen = self._chosen(loaded, limit)
        for task in loaded.tasks.values():
            build(task, limit, chat, chosen)
        asked = [
            (instance, request)
            for task in loaded.tasks.values()
            for instance in task.instances
            for request in requests_of(instance, chat)
        ]
        if subject.thinking is not None and all(isinstance(request, Passage) for _, request in asked):
            raise RecipeError(
                "its tasks read whole texts and let no model think",
                place=f"lm_eval:{self.task}",
                fix="measure it in an eval of its own, without `thinking`",
            )
        answers = yield [request for _, request in asked]
        for (instance, _), answer in zip(asked, answers, strict=True):
            instance.resps.append(response_of(answer, instance.request_type))
        scored = {name: score(task) for name, task in loaded.tasks.items()}
        metrics = [metric_of(name, each) for name, found in scored.items() for each in found]
        return Measured([*group_metrics(loaded, scored), *metrics], samples_of(loaded))

    def outside(self) -> dict[str, str]:
        """The subset is part of what is measured."""
        return fingerprint_of(self.subset)

    def _chosen(self, loaded: Loaded, limit: int | None) -> list[int] | None:
        """The numbers of the rows that are asked; None for all."""
        if not self.subset:
            return None
        from ingot.evals.scores.subset import subset_rows

        if len(loaded.tasks) != 1:
            raise RecipeError(
                f"a subset is of one task, and {self.task} is {len(loaded.tasks)}: {', '.join(loaded.tasks)}",
                place=f"lm_eval:{self.task}",
                fix="measure the tasks as suites of their own, or leave `subset` out",
            )
        (task,) = loaded.tasks.values()
        return subset_rows(Path(self.subset), len(task.eval_docs))[:limit]


def metric_of(name: str, scored: TaskScores) -> Metric:
    """A metric of a task."""
    label = f"lm-eval {name}, {scored.metric.replace('/', ', ')}"
    return metric_of_units(f"lm_eval/{name}/{scored.metric}", scored.units, label, scored.higher_is_better)


def group_metrics(loaded: Loaded, scored: dict[str, list[TaskScores]]) -> list[Metric]:
    """What groups average: over all rows alike, or over tasks alike (then a row weighs as its task's size says)."""
    metrics = []
    for group, (tasks, averaged) in loaded.groups.items():
        for metric, by_size in averaged.items():
            found = {
                task: each
                for task in tasks
                for each in scored[task]
                if each.metric.partition("/")[0] == metric and each.plain
            }
            members = [{f"{task}/{row}": value for row, value in each.units.items()} for task, each in found.items()]
            units = (
                {row: value for each in members for row, value in each.items()} if by_size else of_equal_weight(members)
            )
            if units:
                better = next(iter(found.values())).higher_is_better
                metrics.append(
                    metric_of_units(f"lm_eval/{group}/{metric}", units, f"lm-eval {group}, {metric}", better)
                )
    return metrics


def samples_of(loaded: Loaded) -> list[Sample]:
    """The first instances, with what the model said."""
    instances = [instance for task in loaded.tasks.values() for instance in task.instances][:KEPT_SAMPLES]
    return [
        Sample(
            f"{instance.task_name}-{instance.doc_id}-{instance.idx}",
            f"lm_eval/{instance.task_name}",
            str(instance.args[0]),
            str(instance.resps[0]),
        )
        for instance in instances
    ]
