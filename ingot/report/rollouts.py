"""Rollouts for the page: some groups of some steps, a bounded number of answers and tokens of each.

A group is the answers to one task of a step. Which groups are shown depends on their place and the kind of their task, never on
what they earned; the rest is counted. What a page shows of a sampled token:

    advantages    as stamped
    logprobs      log μ, by the sampler
    ratios        log π_old − log μ: 0 where the trainer sees the distribution that was sampled from
    entropies     of π_old, in nats
    ages          updates between the weights that drew the token and the step that trains on it

An answer whose last turn ran into its limit ended by that (`cut`), whatever could be read of the torn turn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ingot.report.curves import significant
from ingot.report.records import Rollout, RolloutNode
from ingot.report.select import ANSWER_LIMIT, clip, round_robin, spread

STEPS = 12
GROUPS_PER_STEP = 4  # or as many small ones as have ROLLOUTS_PER_STEP answers
ANSWERS_PER_GROUP = 8
ROLLOUTS_PER_STEP = 16
ANSWER_TOKENS = 400
PIECE_LIMIT = 200
READ = ("answer", "malformed")  # what a last turn was taken for

Column = list[float | None]


def rollouts_by_step(rollouts: list[Rollout]) -> list[dict[str, Any]]:
    """Groups of some steps from the first to the last, each with the numbers that the file has of that step."""
    steps: dict[int, list[Rollout]] = {}
    for rollout in rollouts:
        steps.setdefault(rollout.step, []).append(rollout)
    return [_step(step, steps[step]) for step in spread(sorted(steps), STEPS)]


def _step(step: int, rollouts: list[Rollout]) -> dict[str, Any]:
    groups = groups_of(rollouts)
    most = max(GROUPS_PER_STEP, ROLLOUTS_PER_STEP // max(map(len, groups)))
    chosen = round_robin(range(len(groups)), lambda place: groups[place][0].kind, most)
    return {
        "step": step,
        "total": len(rollouts),
        "total_groups": len(groups),
        "groups": [_group(groups[place]) for place in sorted(chosen)],
    }


def groups_of(rollouts: Sequence[Rollout]) -> list[list[Rollout]]:
    """The rollouts of a step by their group; where a file does not say it, neighbours with one task are a group."""
    groups: list[list[Rollout]] = []
    for rollout in rollouts:
        if groups and (groups[-1][0].group, groups[-1][0].task_id) == (rollout.group, rollout.task_id):
            groups[-1].append(rollout)
        else:
            groups.append([rollout])
    return groups


def _group(group: list[Rollout]) -> dict[str, Any]:
    """What the answers have in common, once; and the answers."""
    first, shown = group[0], group[:ANSWERS_PER_GROUP]
    shared = (
        len({tuple(each.nodes[0].pieces) if each.nodes and not each.nodes[0].sampled else () for each in shown}) == 1
    )
    given = first.nodes[0] if shared and first.nodes and not first.nodes[0].sampled else None
    return {
        "task": first.task_id,
        "kind": first.kind,
        "prompt": clip(first.prompt, ANSWER_LIMIT),
        "size": max(len(group), first.group_size or 0),
        "given": None if given is None else _node(given, first.step, ANSWER_TOKENS),
        "given_cut": 0 if given is None else max(0, len(given.pieces) - ANSWER_TOKENS),
        "answers": [_answer(each, 0 if given is None else 1) for each in shown],
    }


def _answer(rollout: Rollout, start: int) -> dict[str, Any]:
    left, nodes = ANSWER_TOKENS, []
    for before, node in zip([None, *rollout.nodes], rollout.nodes, strict=False):
        if start and before is None:
            continue  # it is shown once for the group
        nodes.append(_node(node, rollout.step, left))
        if before is not None and not before.sampled and "".join(before.pieces[-4:]).rstrip().endswith("<think>"):
            nodes[-1]["begins"] = "think"  # the template has opened the trace
        left -= len(nodes[-1]["pieces"])
    return {
        "reward": rollout.reward,
        "rewards": rollout.rewards,
        "correct": rollout.correct,
        "format_ok": rollout.format_ok,
        "ended": _ended(rollout),
        "error": rollout.error,
        "sampled": sum(len(node.pieces) for node in rollout.nodes if node.sampled),
        "cut": sum(len(node.pieces) for node in rollout.nodes[start:]) - (ANSWER_TOKENS - left),
        "nodes": [node for node in nodes if node["pieces"]],
    }


def _ended(rollout: Rollout) -> str:
    """Why an answer ended."""
    last = next((node.ended for node in reversed(rollout.nodes) if node.sampled), "")
    return "cut" if last == "length" and rollout.ended in READ else rollout.ended


def _node(node: RolloutNode, step: int, left: int) -> dict[str, Any]:
    pieces = [clip(piece, PIECE_LIMIT) for piece in node.pieces[: max(left, 0)]]
    shown: dict[str, Any] = {"role": node.role, "sampled": node.sampled, "pieces": pieces}
    shown |= {"ended": node.ended} if node.ended not in ("", "stop") else {}
    shown |= {"rewards": node.rewards} if node.rewards else {}
    ratios = zip(node.old_logprobs, node.logprobs, strict=False)
    columns: dict[str, Column] = {
        "advantages": [_number(value) for value in node.advantages],
        "logprobs": [_number(value) for value in node.logprobs],
        "ratios": [_difference(old, sampled) for old, sampled in ratios],
        "entropies": [_number(value, 3) for value in node.entropies],
        "ages": [None if version is None else step - version for version in node.versions],
    }
    for name, values in columns.items():
        column = values[: len(pieces)] + [None] * (len(pieces) - len(values))
        if any(value is not None for value in column):
            # In plain GRPO all tokens of a rollout share one advantage: one number instead of hundreds.
            shown[name] = column[0] if len(set(column)) == 1 else column
    return shown


def _number(value: float | None, digits: int = 4) -> float | None:
    return significant(value, digits) if value is not None and math.isfinite(value) else None


def _difference(old: float | None, sampled: float | None) -> float | None:
    if old is None or sampled is None or not math.isfinite(old - sampled):
        return None
    return round(old - sampled, 4)  # what is smaller comes from rounding
