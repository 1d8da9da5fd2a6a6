"""What is expected of a training stage when it starts is what `ingot plan` estimates."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingot.planner.expected import expected_speed
from ingot.planner.plan import make_plan
from ingot.recipe import flow
from ingot.recipe.load import load_recipe
from ingot.recipe.stages import STAGES
from ingot.recipe.work import list_work
from ingot.train.parallel.world import World
from ingot.workspace.progress import Progress
from tests.recipe.conftest import Write

from .test_plan import REAL


@pytest.mark.parametrize(("mesh", "processes"), [({}, 1), ({"shard": 4}, 4), ({"shard": 2, "tensor": 2}, 4)])
def test_as_planned(mesh: dict[str, int], processes: int, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write("x", "given/part-0.parquet")
    recipe = load_recipe(write(REAL), [f"pretrain.mesh={mesh}"])
    assert expected_speed(recipe, "pretrain", processes) is None, "the speed of a CPU is not known"
    monkeypatch.setattr("ingot.planner.plan.this_gpu", lambda: "h200")
    planned = next(each for each in make_plan(recipe, gpu="h200").stages if each.name == "pretrain").placement
    assert planned is not None and planned.tokens_per_second is not None
    found = expected_speed(recipe, "pretrain", processes)
    assert found == pytest.approx(planned.tokens_per_second * processes)
    assert expected_speed(recipe, "sft", processes) is None, "it does not know its tokens in advance"
    works = {work.stage.name: work for work in list_work(recipe, Path("runs"))}
    run = flow._Run(
        recipe, list(works.values()), set(), Path("runs"), Progress(), STAGES, World(0, processes), expected_speed
    )
    assert (run._expected(works["pretrain"]), run._expected(works["tokenize"])) == (found, None)


def test_without_a_mesh_all_processes_shard(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write("x", "given/part-0.parquet")
    recipe = load_recipe(write(REAL))
    monkeypatch.setattr("ingot.planner.plan.this_gpu", lambda: "h200")
    spelled = load_recipe(write(REAL), ["pretrain.mesh={shard: 8}"])
    assert expected_speed(recipe, "pretrain", 8) == expected_speed(spelled, "pretrain", 8)
    wrong = load_recipe(write(REAL), ["pretrain.mesh={tensor: 3}"])
    assert expected_speed(wrong, "pretrain", 3) is None, "the stage itself says what is wrong"
