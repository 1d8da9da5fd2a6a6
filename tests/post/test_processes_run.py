"""`ingot run --processes 2` of a recipe that only post-trains: stages of two processes, and of one between them; a stop."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from ingot.recipe.flow import run_recipe
from ingot.recipe.load import load_recipe
from ingot.workspace.stage import StageFolder
from tests.post.making import SUMS
from tests.post.test_processes import COMMON, SAMPLING, STEPS, check_equal
from tests.train.parallel.test_launch import finish, start

TASKS = SUMS.model_dump(mode="json", exclude_defaults=True)


def write_recipe(path: Path, start: Path) -> Path:
    """JSON is YAML."""
    sampling: dict[str, Any] = COMMON | SAMPLING | {"tasks": TASKS}
    stages = {
        "rl": sampling | {"inputs": {"checkpoint": str(start)}, "temperature": 2.0},
        "alone": {"stage": "rl", **sampling, "mesh": {"shard": 1}, "temperature": 2.0},
        "distill": sampling | {"inputs": {"teacher": str(start)}, "group": 2, "mesh": {"tensor": 2}},
    }
    path.write_text(json.dumps({"name": "post", "seed": 1, "stages": stages}), encoding="utf-8")
    return path


@pytest.mark.slow
def test_a_recipe_in_two_processes(schooled: StageFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    recipe = write_recipe(tmp_path / "post.yaml", schooled.path)
    code, said = finish(start(tmp_path, "ingot", "run", str(recipe), "--runs", "two", "--processes", "2"))
    assert code == 0, said
    assert said.count("mesh shard 2") == 1 and said.count("mesh tensor 2") == 1, said
    one = recipe.with_name("one.yaml")
    one.write_text(recipe.read_text(encoding="utf-8").replace('"tensor": 2', '"tensor": 1'), encoding="utf-8")
    run_recipe(load_recipe(one), tmp_path / "one")
    for name in ("rl", "alone", "distill"):
        (found,), (expected,) = (list(tmp_path.glob(f"{runs}/post/{name}-*")) for runs in ("two", "one"))
        assert (found / "DONE").exists() and len((found / "metrics.jsonl").read_text().splitlines()) == STEPS
        check_equal(found, expected)


@pytest.mark.slow
def test_sigterm_while_two_processes_sample(schooled: StageFolder, tmp_path: Path) -> None:
    """Of sampling that would take an hour: they end with 0, soon, and nothing is half there."""
    options: dict[str, Any] = {"inputs": {"checkpoint": str(schooled.path)}, "prompts": 5000, "samples": 100}
    stages = {"prefer": COMMON | options | {"tasks": TASKS, "max_new_tokens": 12}}
    recipe = tmp_path / "prefer.yaml"
    recipe.write_text(json.dumps({"name": "post", "stages": stages}), encoding="utf-8")
    process = start(tmp_path, "ingot", "run", str(recipe), "--runs", "runs", "--processes", "2")
    assert process.stdout is not None
    heard = [next(line for line in process.stdout if "sampling 500000 answers" in line)]
    process.send_signal(signal.SIGTERM)
    code, said = finish(process)
    assert code == 0, said
    assert "stopped in stage prefer" in said, (heard, said)
    (folder,) = tmp_path.glob("runs/post/prefer-*")
    assert not (folder / "pairs.jsonl").exists() and not (folder / "DONE").exists()
