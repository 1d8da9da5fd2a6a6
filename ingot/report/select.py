"""Chooses a bounded number of samples for the page, without bias.

The choice depends only on a sample's position in its file and its group (reason of a removal, kind of a task), never on whether
an answer was right. The rest is counted, so that the page can say "24 of 310".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable
from typing import Any, TypeVar

from ingot.data.read.problem import ORDINARY
from ingot.report.records import (
    ReadProblem,
    RemovedDocument,
    RewrittenDocument,
    StageRecord,
)

REMOVED_PER_STEP = 24
REWRITTEN_PER_STEP = 8
PROBLEMS_PER_RULE = 4
PROBLEM_LIMIT = 300
TEXT_LIMIT = 2000
TASKS = 40
ANSWERS_PER_TASK = 4
ANSWER_LIMIT = 1600

Item = TypeVar("Item")


def round_robin(items: Iterable[Item], group: Callable[[Item], Hashable], most: int) -> list[Item]:
    """At most `most` items, taking turns between groups so that a rare group is seen beside a common one."""
    groups: dict[Hashable, list[Item]] = {}
    for item in items:
        groups.setdefault(group(item), []).append(item)
    chosen: list[Item] = []
    turn = 0
    while len(chosen) < most and any(len(members) > turn for members in groups.values()):
        chosen.extend(members[turn] for members in groups.values() if len(members) > turn)
        turn += 1
    return chosen[:most]


def spread(values: list[Item], most: int) -> list[Item]:
    """At most `most` of the values at equal distances, the first and the last among them."""
    if len(values) <= most:
        return values
    return [values[round(index * (len(values) - 1) / (most - 1))] for index in range(most)]


def clip(text: str, limit: int) -> str:
    """The text, or its first `limit` characters with a mark that more followed."""
    return text if len(text) <= limit else text[:limit] + " […]"


def curation(stage: StageRecord) -> dict[str, Any]:
    """Everything that the page shows of a curate stage."""
    return {
        "stage": stage.name,
        "folder": stage.folder,
        "steps": [step.model_dump() for step in stage.funnel],
        "removed": removed_by_step(stage),
        "rewritten": rewritten_by_step(stage.rewritten),
        "problems": problems_by_rule(stage.read_problems),
        "decontaminations": {step: each.model_dump(exclude={"texts"}) for step, each in stage.decontaminations.items()},
        "bandings": {step: each.model_dump() for step, each in stage.bandings.items()},
        "kept": stage.kept,
    }


def removed_by_step(stage: StageRecord) -> dict[str, dict[str, Any]]:
    """Removed samples of every curation step, spread over the rules of that step."""
    steps: dict[str, list[RemovedDocument]] = {}
    for document in stage.removed:
        steps.setdefault(document.step, []).append(document)
    result: dict[str, dict[str, Any]] = {}
    for step, members in steps.items():
        samples = [_removed(each) for each in round_robin(members, lambda each: each.rule, REMOVED_PER_STEP)]
        if step in stage.decontaminations:
            samples = [sample | eval_beside(sample, stage.decontaminations[step].texts) for sample in samples]
        result[step] = {"total": len(members), "samples": samples}
    return result


def eval_beside(sample: dict[str, Any], texts: dict[str, str]) -> dict[str, str]:
    """The eval that a document holds: the one that its reason names as `set:id`."""
    found = [name for name in texts if re.search(rf"(^|\s){re.escape(name)}([\s,]|$)", sample["reason"])]
    name = max(found, key=len, default=None)
    return {} if name is None else {"eval": name, "eval_text": texts[name]}


def rewritten_by_step(documents: list[RewrittenDocument]) -> dict[str, list[dict[str, Any]]]:
    """Samples of texts before and after every step that rewrites."""
    steps: dict[str, list[dict[str, Any]]] = {}
    for document in documents:
        chosen = steps.setdefault(document.step, [])
        if len(chosen) < REWRITTEN_PER_STEP:
            sample = document.model_dump(exclude={"step"})
            chosen.append(sample | {name: clip(sample[name], TEXT_LIMIT) for name in ("before", "after")})
    return steps


def problems_by_rule(problems: list[ReadProblem]) -> list[dict[str, Any]]:
    """Some problems of reading of each rule: first what is damaged, then what was repaired or is no document."""
    rules: dict[str, list[ReadProblem]] = {}
    for problem in sorted(problems, key=lambda problem: (problem.rule in ORDINARY, problem.kept)):
        rules.setdefault(problem.rule, []).append(problem)
    chosen = [problem for members in rules.values() for problem in members[:PROBLEMS_PER_RULE]]
    return [problem.model_dump() | {"text": clip(problem.text, PROBLEM_LIMIT)} for problem in chosen]


def _removed(document: RemovedDocument) -> dict[str, Any]:
    sample = document.model_dump(exclude={"step", "duplicate_text"}, exclude_none=True, exclude_defaults=True)
    sample |= {"rule": document.rule, "reason": document.reason.removeprefix(f"{document.step}: ")}
    sample["text"] = clip(document.text, TEXT_LIMIT)
    if document.duplicate_text is not None:
        sample["duplicate_text"] = clip(document.duplicate_text, TEXT_LIMIT)
    return sample


def generations_by_task(evaluations: list[tuple[str, StageRecord]]) -> dict[str, Any]:
    """The same tasks as every checkpoint answered them; `evaluations` pairs the evaluated stage with its eval."""
    tasks: dict[str, dict[str, Any]] = {}
    for checkpoint, stage in evaluations:
        for generation in stage.generations:
            fresh: dict[str, Any] = {
                "id": generation.task_id,
                "kind": generation.kind,
                "expected": generation.expected,
                "answers": {},
            }
            task = tasks.setdefault(generation.task_id, fresh | {"prompt": clip(generation.prompt, ANSWER_LIMIT)})
            answers = task["answers"].setdefault(checkpoint, {"right": 0, "judged": 0, "texts": []})
            answers["judged"] += generation.correct is not None
            answers["right"] += bool(generation.correct)
            if len(answers["texts"]) < ANSWERS_PER_TASK:
                answers["texts"].append([clip(generation.completion, ANSWER_LIMIT), generation.correct])
    seen_by = max((len(task["answers"]) for task in tasks.values()), default=0)
    # Only a task that all checkpoints answered shows what a stage changed; others fill the page if there is room.
    ranked = sorted(tasks.values(), key=lambda task: len(task["answers"]) < seen_by)
    chosen = round_robin(ranked, lambda task: str(task["kind"]), TASKS)
    stages = [checkpoint for checkpoint, stage in evaluations if stage.generations]
    return {"stages": stages, "tasks": chosen, "total": len(tasks)}
