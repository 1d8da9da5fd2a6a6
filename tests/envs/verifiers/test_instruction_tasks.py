"""The task kind `instructions`: generated requests can be followed, and rows of IFEval's form are read and refused."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from ingot.envs.task import Task
from ingot.envs.tasks._instruction_constraints import CONSTRAINTS
from ingot.envs.tasks.instructions import Instructions, instructions_of
from ingot.tokens.chat import Message
from ingot.workspace.errors import DataError

KIND = Instructions()


@pytest.fixture(scope="module")
def tasks() -> list[Task]:
    return [task for seed in range(150) for task in KIND.generate(seed, 2, "train" if seed % 2 else "test")]


def test_every_generated_request_can_be_followed_and_broken(tasks: list[Task]) -> None:
    for number, task in enumerate(tasks):
        right = KIND.score(task, KIND.solution(task))
        assert (right.reward, right.correct, right.format_ok, right.detail["followed"]) == (1, True, True, 1), task
        wrong = KIND.score(task, KIND.weaker(task, random.Random(number)))
        assert (wrong.reward, wrong.correct, wrong.format_ok) == (0, False, True), task
    assert {id for task in tasks for id, _ in task.asked} == {constraint.id for constraint in CONSTRAINTS}
    assert {len(task.asked) for task in tasks} == {1, 2, 3}


def test_what_is_checked_is_said_in_the_question(tasks: list[Task]) -> None:
    for task in tasks:
        for _, kwargs in task.asked:
            for value in kwargs.values():
                for part in value if isinstance(value, list) else [value]:
                    assert str(part) in task.question, (task.question, part)


def test_no_two_instructions_of_a_request_claim_the_same_part(tasks: list[Task]) -> None:
    claims = {constraint.id: constraint.claims for constraint in CONSTRAINTS}
    for task in tasks:
        claimed = [part for id, _ in task.asked for part in claims[id]]
        assert len(claimed) == len(set(claimed)), task.asked


def test_the_share_of_followed_instructions_is_the_reward_if_asked_for(tasks: list[Task]) -> None:
    task = next(
        task for task in tasks if [id for id, _ in task.asked].count("punctuation:no_comma") and len(task.asked) == 2
    )
    broken = [Message("assistant", KIND.solution(task)[0].content + ",")]
    followed = sum(check.follows(broken[0].content) for check in instructions_of(task))
    assert Instructions(share=True).score(task, broken).reward == followed / 2 < 1
    assert KIND.score(task, broken).reward == 0


def test_rows_of_a_file(tmp_path: Path) -> None:
    row = {
        "key": 1,
        "prompt": "Say something without commas, in under ten words.",
        "instruction_id_list": ["punctuation:no_comma", "length_constraints:number_words"],
        "kwargs": [{"num_words": None}, {"num_words": 10, "relation": "less than", "letter": None}],
    }
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row) + "\n\n", encoding="utf-8")
    kind = Instructions(test=(str(path),), thinking=True)
    (task,) = kind.generate(0, 1, "test")
    assert task.question == row["prompt"] and task.thinking
    assert kind.score(task, [Message("assistant", "Plain words.", thinking="hm")]).reward == 1
    assert kind.score(task, [Message("assistant", "Plain, words.", thinking="hm")]).reward == 0
    with pytest.raises(DataError, match="without a solution"):
        kind.solution(task)


def test_ifeval_rows_are_read(shared_data: Path) -> None:
    found = Instructions(test=(str(shared_data / "ifeval" / "ifeval_dev.jsonl.gz"),)).rows("test") or []
    assert len(found) == 259 and sum(len(task.asked) for task in found) == 387


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "not JSON"),
        ('{"prompt": "x"}', "instruction_id_list"),
        ('{"prompt": "x", "instruction_id_list": ["punctuation:no_comma"], "kwargs": []}', "as many kwargs"),
        ('{"prompt": "x", "instruction_id_list": ["punctuation:no_coma"], "kwargs": [{}]}', "did you mean"),
    ],
)
def test_bad_rows_are_named(tmp_path: Path, line: str, problem: str) -> None:
    (tmp_path / "rows.jsonl").write_text("\n" + line, encoding="utf-8")
    with pytest.raises(DataError, match=problem) as caught:
        Instructions(test=(str(tmp_path / "rows.jsonl"),)).rows("test")
    assert caught.value.place is not None and caught.value.place.endswith("rows.jsonl:2")
