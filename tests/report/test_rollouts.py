"""Groups of rollouts for the page: bounded, fair, and honest about what was left out."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from ingot.report.inline import embed
from ingot.report.read import read_run
from ingot.report.records import Rollout, RolloutNode
from ingot.report.rollouts import (
    ANSWER_TOKENS,
    ANSWERS_PER_GROUP,
    GROUPS_PER_STEP,
    ROLLOUTS_PER_STEP,
    STEPS,
    groups_of,
    rollouts_by_step,
)

from .run_files import rows_of

PROMPT = RolloutNode(role="prompt", pieces=["Hi"] * 500)


def answer(**options: Any) -> Rollout:
    node = RolloutNode(
        role="assistant", pieces=["x"] * 300, sampled=True, advantages=[0.5] * 300, logprobs=[-0.25, float("nan")]
    )
    return Rollout.model_validate({"step": 0, "nodes": [PROMPT, node, node], **options})


def test_bounded_in_every_direction() -> None:
    rollouts = [
        answer(step=step, group=group, group_size=64, task_id=f"t{group}")
        for step in range(40)
        for group in range(6)
        for _ in range(20)
    ]
    chosen = rollouts_by_step(rollouts)
    assert len(chosen) == STEPS and (chosen[0]["step"], chosen[-1]["step"]) == (0, 39)
    for step in chosen:
        assert (step["total"], step["total_groups"], len(step["groups"])) == (120, 6, GROUPS_PER_STEP)
        assert all((len(each["answers"]), each["size"]) == (ANSWERS_PER_GROUP, 64) for each in step["groups"])
    group = chosen[0]["groups"][0]
    assert (len(group["given"]["pieces"]), group["given_cut"]) == (ANSWER_TOKENS, 500 - ANSWER_TOKENS)
    first = group["answers"][0]
    assert [len(each["pieces"]) for each in first["nodes"]] == [300, ANSWER_TOKENS - 300]
    assert (first["cut"], first["sampled"]) == (600 - ANSWER_TOKENS, 600)
    assert first["nodes"][0]["advantages"] == 0.5  # one number for all tokens
    assert first["nodes"][0]["logprobs"][:3] == [-0.25, None, None]
    assert not {"ratios", "entropies", "ages"} & set(first["nodes"][0]), "nobody recorded them"


def test_a_group_is_what_the_file_says_or_neighbours_with_one_task() -> None:
    said = [answer(group=place // 2, task_id="same") for place in range(4)]
    assert [len(group) for group in groups_of(said)] == [2, 2]
    unsaid = [answer(task_id=task) for task in "aabbba"]
    assert [len(group) for group in groups_of(unsaid)] == [2, 3, 1]


def test_a_rare_kind_is_seen_and_rewards_choose_nothing() -> None:
    def tasks(reward: float) -> list[str]:
        kinds = [kind for kind in "aaaaaaaaab" for _ in range(4)]
        rollouts = [
            answer(group=n // 4, task_id=f"{kind}{n // 4}", kind=kind, reward=reward) for n, kind in enumerate(kinds)
        ]
        return [group["task"] for group in rollouts_by_step(rollouts)[0]["groups"]]

    assert tasks(0.0) == tasks(1.0) == ["a0", "a1", "a2", "b9"]


def test_of_groups_of_one_answer_more_are_shown() -> None:
    (step,) = rollouts_by_step([answer(group=n, task_id=str(n)) for n in range(40)])
    assert (len(step["groups"]), step["total_groups"]) == (ROLLOUTS_PER_STEP, 40)


def test_prompts_that_differ_stay_with_their_answers() -> None:
    nodes = [RolloutNode(role="prompt", pieces=["A"]), RolloutNode(role="prompt", pieces=["B"])]
    rollouts = [Rollout(step=0, task_id="t", nodes=[node]) for node in nodes]
    (group,) = rollouts_by_step(rollouts)[0]["groups"]
    assert group["given"] is None
    assert [each["nodes"][0]["pieces"] for each in group["answers"]] == [["A"], ["B"]]
    (empty,) = rollouts_by_step([Rollout(step=0)])[0]["groups"]
    assert (empty["given"], empty["answers"][0]["nodes"]) == (None, [])


@pytest.mark.parametrize(
    ("ended", "turn", "shown"),
    [
        ("malformed", "length", "cut"),
        ("malformed", "stop", "malformed"),
        ("answer", "length", "cut"),
        ("answer", "stop", "answer"),
        ("tokens", "length", "tokens"),
        ("malformed", "", "malformed"),  # of a file that does not say it
    ],
)
def test_what_a_limit_cut_is_told_from_what_is_malformed(ended: str, turn: str, shown: str) -> None:
    said = RolloutNode(role="assistant", pieces=["x"], sampled=True, ended=turn, rewards={"brief": 0.5})
    tool = RolloutNode(role="tool", pieces=["y"])
    (group,) = rollouts_by_step([Rollout(step=0, ended=ended, nodes=[PROMPT, said, tool, said])])[0]["groups"]
    (told,) = group["answers"]
    assert told["ended"] == shown
    assert [node.get("rewards") for node in told["nodes"]] == [{"brief": 0.5}, None, {"brief": 0.5}]
    assert [node.get("ended") for node in told["nodes"]] == [own := turn if turn == "length" else None, None, own]


def test_a_trace_that_the_template_opened() -> None:
    prompt = RolloutNode(role="prompt", pieces=["Hi", "<think>", "\n"])
    said = RolloutNode(role="assistant", pieces=["so", "</think>"], sampled=True)
    (group,) = rollouts_by_step([Rollout(step=0, nodes=[prompt, said, prompt, said])])[0]["groups"]
    assert [node.get("begins") for node in group["answers"][0]["nodes"]] == ["think", None, "think"]


def test_ratio_and_age_against_their_definition() -> None:
    old, sampled, versions = [-1.0, -2.0, -3.0, None], [-1.25, -2.0, -float("inf"), None], [7, 5, 4, None]
    node = RolloutNode(
        pieces=list("abcd"),
        sampled=True,
        logprobs=sampled,
        old_logprobs=old,
        versions=versions,
        entropies=[0.12345] * 4,
    )
    (group,) = rollouts_by_step([Rollout(step=7, nodes=[node])])[0]["groups"]
    (shown,) = group["answers"][0]["nodes"]
    assert shown["ratios"] == [0.25, 0.0, None, None]
    assert (shown["ages"], shown["entropies"]) == ([0, 2, 3, None], 0.123)


@pytest.mark.parametrize("stage", ["rl", "distill"])
def test_a_real_run(stage: str, real_run: Path) -> None:
    """What is shown stands in the file; and where sampler and trainer have the same weights their ratio is 1."""
    rows = rows_of(real_run, stage, "trajectories.jsonl")
    record = next(each for each in read_run(real_run).stages if each.name == stage)
    for chosen in rollouts_by_step(record.rollouts):
        assert sum(len(group["answers"]) for group in chosen["groups"]) == chosen["total"] > 4
        for number, group in enumerate(chosen["groups"]):
            numbers = sorted({row["group"] for row in rows if row["step"] == chosen["step"]})
            there = [row for row in rows if (row["step"], row["group"]) == (chosen["step"], numbers[number])]
            for answered, row in zip(group["answers"], there, strict=True):
                shown = [group["given"], *answered["nodes"]]
                assert [node["pieces"] for node in shown] == [node["pieces"] for node in row["nodes"]]
                last = [node["ended"] for node in row["nodes"] if node["sampled"]][-1]
                assert last in ("stop", "length") and answered["reward"] == row["reward"]
                assert answered["ended"] == ("cut" if last == "length" else row["ended"])
                for node in (node for node in answered["nodes"] if node["sampled"]):
                    ratios = node["ratios"] if isinstance(node["ratios"], list) else [node["ratios"]]
                    assert max(map(abs, ratios)) < 1e-3 and node["ages"] == 0
                    assert all(0 <= value < math.log(600) for value in node["entropies"])


def test_the_largest_page_has_a_size() -> None:
    """A stage that fills every bound takes a few megabytes, whatever its file holds."""
    node = RolloutNode(
        role="assistant",
        pieces=["token"] * 4000,
        sampled=True,
        advantages=[-0.12345 - n / 1e4 for n in range(4000)],
        logprobs=[-1.2345 - n / 1e4 for n in range(4000)],
        old_logprobs=[-1.2446 - n / 2e4 for n in range(4000)],
        entropies=[1.2345 + n / 1e3 for n in range(4000)],
        versions=[n % 3 for n in range(4000)],
    )
    few = [Rollout(step=step, group=group, nodes=[node]) for step in range(2) for group in range(6) for _ in range(10)]
    each = len(embed(rollouts_by_step(few))) / 2
    assert STEPS * each < 8_000_000
