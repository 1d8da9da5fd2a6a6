"""A real pre-training run, killed with SIGKILL at random moments and resumed, is bit for bit the uninterrupted one."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from ingot.checkpoints.checkpoint import load_model, verify_checkpoint
from ingot.workspace.files import PARTIAL, read_json
from tests.making.stages import stage_folder
from tests.train.pretraining import (
    CHECKPOINT_EVERY,
    STEPS,
    STOPPED,
    finish,
    half_written,
    last_step,
    start,
    wait_for_save,
    wait_for_step,
    write_inputs,
)
from tests.train.toy import records, same_weights

KILLS = 10


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_inputs(tmp_path_factory.mktemp("inputs"))


@pytest.fixture(scope="module")
def uninterrupted(
    inputs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> tuple[list[dict[str, Any]], dict[str, Tensor], dict[str, str]]:
    """Metrics without times, weights, and checksums of the run that is not interrupted."""
    path = tmp_path_factory.mktemp("whole")
    assert finish(start(path, inputs)) == 0
    return result(path)


def result(path: Path) -> tuple[list[dict[str, Any]], dict[str, Tensor], dict[str, str]]:
    checksums = read_json(path / "checkpoint" / "manifest.json")
    del checksums["state/.metadata"]  # torch writes the folder's name and a random number into it
    return records(stage_folder(path)), load_model(path).state_dict(), checksums


def assert_same(path: Path, expected: tuple[list[dict[str, Any]], dict[str, Tensor], dict[str, str]]) -> None:
    metrics, weights, checksums = result(path)
    assert [row["step"] for row in metrics] == list(range(STEPS))
    assert metrics == expected[0]
    assert same_weights(weights, expected[1])
    assert checksums == expected[2]


def assert_nothing_looks_finished(path: Path) -> None:
    """After a kill: no final checkpoint, and whatever has the name of a checkpoint is a whole one."""
    assert not (path / "checkpoint").exists()
    for checkpoint in (path / "steps").glob("step-*"):
        if not checkpoint.name.endswith(PARTIAL):
            verify_checkpoint(checkpoint)


def test_the_run_is_worth_the_test(uninterrupted: tuple[list[dict[str, Any]], Any, Any]) -> None:
    metrics, _, _ = uninterrupted
    assert metrics[-1]["loss"] < metrics[0]["loss"] - 1, "it learns"
    assert [row["step"] for row in metrics if "validation_bits_per_byte" in row] == [9, 19, 29, 39]
    assert len({row["loss"] for row in metrics}) == STEPS


def test_ten_kills_at_random_moments_change_nothing(
    inputs: dict[str, Path], uninterrupted: tuple[Any, Any, Any], tmp_path: Path
) -> None:
    path, rng = tmp_path / "stage", random.Random(time.time_ns())
    during_saves = 0
    for kill in range(KILLS):
        began = time.time()
        process = start(path, inputs)
        if kill % 3 == 2:
            wait_for_save(process, path, began)
            time.sleep(rng.uniform(0, 0.03) if kill > 2 else 0)
        else:  # between two steps, in a step, in a save, or while it is starting: wherever the time falls
            wait_for_step(process, path, rng.randrange(2 * kill, 2 * kill + 5))
            time.sleep(rng.uniform(0, 0.04))
        process.kill()
        assert finish(process) == -signal.SIGKILL
        during_saves += half_written(path, began)
        assert_nothing_looks_finished(path)
    assert during_saves, "some kills must hit a save"
    assert finish(start(path, inputs)) == 0
    assert_same(path, uninterrupted)


def test_ctrl_c_stops_at_a_step_and_goes_on_exactly(
    inputs: dict[str, Path], uninterrupted: tuple[Any, Any, Any], tmp_path: Path
) -> None:
    path = tmp_path / "stage"
    for wish, step in ((signal.SIGINT, 6), (signal.SIGTERM, 17)):
        process = start(path, inputs)
        wait_for_step(process, path, step)
        assert process.pid is not None
        os.kill(process.pid, wish)
        assert finish(process) == STOPPED
        assert_nothing_looks_finished(path)
        newest = max((path / "steps").iterdir())
        assert read_json(newest / "training.json")["step"] == last_step(path) + 1 > step, "the last step is saved"
    assert finish(start(path, inputs)) == 0
    assert_same(path, uninterrupted)


def test_a_killed_run_with_a_damaged_checkpoint_uses_the_one_before(
    inputs: dict[str, Path], uninterrupted: tuple[Any, Any, Any], tmp_path: Path
) -> None:
    path = tmp_path / "stage"
    process = start(path, inputs)
    wait_for_step(process, path, 3 * CHECKPOINT_EVERY + 1)
    process.kill()
    finish(process)
    newest = max(step for step in (path / "steps").iterdir() if not step.name.endswith(PARTIAL))
    content = bytearray((newest / "state" / "__0_0.distcp").read_bytes())
    content[-100] ^= 1
    (newest / "state" / "__0_0.distcp").write_bytes(content)
    assert finish(start(path, inputs)) == 0
    assert_same(path, uninterrupted)
