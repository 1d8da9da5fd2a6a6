"""Chooses a bounded number of samples for the page, without bias.

The choice depends only on a sample's position in its file and its group (reason of a removal, kind of a task, step of a
rollout), never on whether an answer was right. The rest is counted, so that the page can say "24 of 310".
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Iterable
from typing import Any, TypeVar

from ingot.data.read.problem import ORDINARY
from ingot.report.curves import significant
from ingot.report.records import (
    ReadProblem,
    RemovedDocument,
    RewrittenDocument,
    Rollout,
    RolloutNode,
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
ROLLOUT_STEPS = 12
ROLLOUTS_PER_STEP = 8
ROLLOUT_TOKENS = 400

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


def rollouts_by_step(rollouts: list[Rollout]) -> list[dict[str, Any]]:
    """Rollouts of some steps from the first to the last, each with the number that the file has of that step."""
    steps: dict[int, list[Rollout]] = {}
    for rollout in rollouts:
        steps.setdefault(rollout.step, []).append(rollout)
    return [
        {
            "step": step,
            "total": len(steps[step]),
            "rollouts": [_rollout(rollout) for rollout in steps[step][:ROLLOUTS_PER_STEP]],
        }
        for step in spread(sorted(steps), ROLLOUT_STEPS)
    ]


def _rollout(rollout: Rollout) -> dict[str, Any]:
    left, nodes = ROLLOUT_TOKENS, []
    for node in rollout.nodes:
        nodes.append(_node(node, left))
        left -= len(nodes[-1]["pieces"])
    return {
        "task": rollout.task_id,
        "kind": rollout.kind,
        "prompt": clip(rollout.prompt, ANSWER_LIMIT),
        "reward": rollout.reward,
        "correct": rollout.correct,
        "format_ok": rollout.format_ok,
        "error": rollout.error,
        "cut": sum(len(node.pieces) for node in rollout.nodes) - (ROLLOUT_TOKENS - left),
        "nodes": [node for node in nodes if node["pieces"]],
    }


def _node(node: RolloutNode, left: int) -> dict[str, Any]:
    pieces = [clip(piece, 200) for piece in node.pieces[: max(left, 0)]]
    shown: dict[str, Any] = {"role": node.role, "sampled": node.sampled, "pieces": pieces}
    for name, values in (("advantages", node.advantages), ("logprobs", node.logprobs)):
        column = [_number(value) for value in values[: len(pieces)]]
        column += [None] * (len(pieces) - len(column))
        if any(value is not None for value in column):
            # In plain GRPO all tokens of a rollout share one advantage: one number instead of hundreds.
            shown[name] = column[0] if len(set(column)) == 1 else column
    return shown


def _number(value: float | None) -> float | None:
    return significant(value, 4) if value is not None and math.isfinite(value) else None
