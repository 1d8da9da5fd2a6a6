"""Runs in processes of their own, that are killed, stopped and started twice."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import ingot
from ingot.recipe.flow import run_recipe
from ingot.recipe.work import list_work
from ingot.workspace.errors import RunLocked
from ingot.workspace.files import read_json
from tests.making.processes import wait_until
from tests.slow import first_fast

from . import toy
from .conftest import Load

TEXT = """
name: small
stages:
  make: {steps: 6, pause: 0.01}
  train: {steps: 16, pause: 0.01}
  second: {stage: train, steps: 12, pause: 0.01}
  score: {after: each}
  judge: {claims: [better]}
"""


def start(runs: str) -> subprocess.Popen[str]:
    """A run in another process, past its imports."""
    environment = os.environ | {"PYTHONPATH": str(Path(ingot.__file__).parents[1])}
    process = subprocess.Popen(
        [sys.executable, toy.__file__, "recipe.yaml", runs],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def artifacts(runs: Path) -> dict[str, bytes]:
    """Every finished artifact's bytes."""
    kinds = ("documents", "checkpoint", "scores", "verdict")
    found = {}
    for path in sorted(runs.rglob("*")):
        parts = path.relative_to(runs).parts
        if path.is_file() and len(parts) > 3 and parts[2] in kinds:
            found["/".join(parts[1:])] = path.read_bytes()
    return found


@pytest.mark.parametrize("wanted", first_fast([4, 10]))
def test_kill_at_random_moments_never_leaves_a_folder_that_looks_finished(load: Load, wanted: int) -> None:
    recipe = load(TEXT)
    run_recipe(recipe, Path("reference"), table=toy.TABLE)
    reference = artifacts(Path("reference"))
    assert len(reference) == 6 * 4
    moments, kills, attempts = random.Random(5), 0, 0
    while kills < wanted:
        attempts += 1
        assert attempts < 4 * wanted
        process = start("runs")
        time.sleep(moments.uniform(0.0, 0.2))
        process.kill()
        process.communicate(timeout=20)
        kills += process.returncode == -signal.SIGKILL
        for work in list_work(recipe, Path("runs"), toy.TABLE):
            if (work.folder / "DONE").exists():  # whatever says it is finished is whole, and right
                assert work.done is not None
                prefix = f"{work.folder.name}/"
                whole = {name: content for name, content in reference.items() if name.startswith(prefix)}
                assert {name: c for name, c in artifacts(Path("runs")).items() if name.startswith(prefix)} == whole
        if process.returncode == 0:  # the kill came too late: everything is done, begin again
            assert artifacts(Path("runs")) == reference
            shutil.rmtree("runs")
    process = start("runs")
    assert process.wait(timeout=60) == 0
    assert artifacts(Path("runs")) == reference
    assert all(work.done is not None for work in list_work(recipe, Path("runs"), toy.TABLE))
    assert not list(Path("runs").rglob("*.partial"))


def test_a_second_process_is_refused_by_name_and_a_dead_one_is_no_obstacle(load: Load) -> None:
    recipe = load(TEXT, ["train.steps=500"])
    Path("recipe.yaml").write_text(TEXT.replace("steps: 16", "steps: 500"))
    process = start("runs")
    try:
        wait_until((Path("runs/small/run.json")).exists)
        with pytest.raises(RunLocked) as caught:
            run_recipe(recipe, Path("runs"), table=toy.TABLE)
        message = str(caught.value)
        assert message.startswith(f"runs/small: process {process.pid} on ")
        assert "toy.py recipe.yaml runs" in message
        assert f"`kill {process.pid}`" in message
    finally:
        process.kill()
        process.communicate(timeout=20)
    assert (Path("runs/small/.lock")).exists()
    assert len(run_recipe(load(TEXT), Path("runs"), table=toy.TABLE).stages) == 6


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_stop_at_a_step(load: Load, number: signal.Signals) -> None:
    load(TEXT)
    process = start("runs")
    wait_until((Path("runs/small/run.json")).exists)
    while read_json(Path("runs/small/run.json"))["stages"][1]["status"] != "running":
        time.sleep(0.01)
        assert process.poll() is None
    process.send_signal(number)
    _, errors = process.communicate(timeout=20)
    assert "Interrupted: stopped in stage train; its work is saved in runs/small/train-" in errors
    assert [stage["status"] for stage in read_json(Path("runs/small/run.json"))["stages"]][:2] == ["done", "pending"]
    process = start("runs")
    assert process.wait(timeout=60) == 0
