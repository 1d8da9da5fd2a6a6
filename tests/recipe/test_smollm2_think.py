"""The tasks of recipes/smollm2-think.yaml: their working is true line by line and ends in reasoning-gym's answer."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from ingot.envs.environment import Environment
from ingot.post.distill.config import DistillConfig
from ingot.recipe.load import load_recipe
from ingot.workspace.outside import load_outside

RECIPES = Path(__file__).parents[2] / "recipes"


def kind(name: str) -> Environment:
    made = load_outside(f"{RECIPES / 'smollm2_think.py'}:{name}")()
    assert isinstance(made, Environment)
    return made


def worked(name: str) -> list[tuple[list[str], str, str]]:
    """Lines of thinking, the answer and the question of 40 tasks; each solution earns the reward."""
    environment, found = kind(name), []
    for task in environment.generate(3, 40, "train"):
        (message,) = environment.solution(task)
        assert environment.score(task, [message]).reward == 1
        assert message.thinking
        found.append((message.thinking.splitlines(), message.content, task.question))
    return found


def test_sums_are_added_up() -> None:
    for lines, answer, question in worked("ChainSum"):
        totals = [line.split(" = ") for line in lines]
        assert all(eval(left) == int(right) for left, right in totals)
        assert totals[-1][1] == answer
        assert question.endswith(f"{totals[0][0]} =") or totals[0][0] in question


def test_divisors_follow_from_divisions() -> None:
    for lines, answer, question in worked("Gcd"):
        parts = [[int(number) for number in re.findall(r"\d+", line)] for line in lines]
        assert all(large == times * small + rest and rest < small for large, times, small, rest in parts)
        numbers = [int(number) for number in re.findall(r"\d+", question)]
        assert parts[-1][2] == math.gcd(*numbers) == int(answer) and parts[-1][3] == 0


def test_words_are_spelt() -> None:
    for (forwards, backwards), answer, question in worked("SpellBackward"):
        assert question.endswith(f" {forwards.replace('-', '')}")
        assert backwards.split("-") == forwards.split("-")[::-1]
        assert backwards.replace("-", "") == answer


def test_letters_are_counted_word_by_word() -> None:
    for lines, answer, question in worked("LetterCounting"):
        (letter, text) = re.findall(r'"([^"]*)"', question)
        assert lines[-1].rpartition(": ")[2] == answer == str(text.lower().count(letter.lower()))
        assert [line.rpartition(": ")[0].replace("-", "") for line in lines] == text.lower().replace("-", "").split()


def test_the_recipe_can_be_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "checkpoints" / "smollm2").mkdir(parents=True)
    recipe = load_recipe(RECIPES / "smollm2-think.yaml")
    names = [stage.name for stage in recipe.stages]
    assert [name for name in names if "eval" not in name] == [
        "before",
        "sft",
        "early",
        "prefer",
        "distill",
        "soup",
        "verdict",
    ]
    assert set(recipe.stage("prefer").inputs) == {"checkpoint", "strong", "weak"}
    distill = recipe.stage("distill").config
    assert isinstance(distill, DistillConfig)
    kinds = [distill.tasks.kind(written).kind for written in distill.tasks.weights]
    assert [kind for kind in kinds if distill.teacher_of(kind) == "original"] == ["wishes"]
