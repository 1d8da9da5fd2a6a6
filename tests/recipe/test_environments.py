"""recipes/environments.yaml: it measures every environment that ships, and each kind has solvable tasks at its difficulty."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import yaml

from ingot.envs.config import TasksConfig
from ingot.envs.environment import TASKS, Environment
from ingot.envs.files import FileEnvironment
from ingot.workspace.outside import load_outside

RECIPES = Path(__file__).parents[2] / "recipes"
SUITE = yaml.safe_load((RECIPES / "environments.yaml").read_text(encoding="utf-8"))["suites"][0]
OF_THE_QUICKSTART = {"no_think", "small_talk"}  # what its model is taught to say, and no other could know
OF_OTHERS = {"verifiers", "prompts"}  # of another library, of a user: none ships


def kinds() -> dict[str, Environment]:
    found = {}
    for name in (each["kind"] for each in SUITE["kinds"]):
        options = SUITE["difficulty"].get(name, {})
        if ".py:" in name:
            found[name] = load_outside(f"{RECIPES}/{name}")(**options)
        else:
            found[name] = TasksConfig.model_validate({name: options}).kind(name)
    return found


def test_every_environment_is_measured() -> None:
    assert {name for name in kinds() if ".py:" not in name} == set(TASKS.builtin()) - OF_THE_QUICKSTART - OF_OTHERS
    assert set(SUITE["difficulty"]) <= set(kinds()), "options of a kind that is not measured"


def with_files(environment: Environment) -> bool:
    return isinstance(environment, FileEnvironment) and bool(environment.test)


@pytest.mark.parametrize("name", [name for name, each in kinds().items() if not with_files(each)])
def test_generated_tasks_at_this_difficulty(name: str) -> None:
    environment, rng = kinds()[name], random.Random(0)
    tasks = list(environment.generate(5, 20, "test"))
    assert len({task.question for task in tasks}) == len(tasks)
    for task in tasks[:5]:
        right, wrong = environment.solution(task), environment.weaker(task, rng)
        if not task.tools:  # a solution with calls has the tools' answers in between
            assert environment.score(task, right).reward == 1.0
            assert wrong is not None and environment.score(task, wrong).reward < 1.0


def test_the_files_have_as_many_tasks_as_are_asked(
    shared_data: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "data").symlink_to(shared_data)
    monkeypatch.chdir(tmp_path)
    counts = {each["kind"]: each["count"] for each in SUITE["kinds"]}
    found = {name: len(each.generate(1, counts[name], "test")) for name, each in kinds().items() if with_files(each)}
    assert len(found) == 6 and found == {name: counts[name] for name in found}
