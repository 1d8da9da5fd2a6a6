"""Killed at any moment and begun again: the same bytes."""

from __future__ import annotations

import multiprocessing
import os
import random
import time
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from ingot.data.config import CurateConfig
from ingot.data.curate import run as run_stage
from tests.forking import forking

from .dirty import write_rows
from .test_curate import results, stage_at


def curate(folder: Path, options: dict[str, Any]) -> None:
    """The stage in a process of its own, which forks its workers: it has one thread."""
    folder.mkdir(parents=True, exist_ok=True)
    usual = multiprocessing.get_context
    with patch.object(multiprocessing, "get_context", lambda _: usual("fork")):
        run_stage(CurateConfig(**options), {}, stage_at(folder, made=True))


STEPS = [
    {"step": "split"},
    {"step": "exact_dedup"},
    {"step": "gopher_quality", "where": {"kind": "prose"}},
    {"step": "near_dedup"},
]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rows")
    for number in range(3):
        write_rows(folder / f"rows-{number}.jsonl", 2, seed=number)
    return folder


def start(stage: Path, rows: Path, **options: Any) -> ForkServerProcess:
    """Begin a curation in a process of its own."""
    config = {"sources": [{"files": f"{rows}/*.jsonl"}], "steps": STEPS, **options}
    process = forking().Process(target=curate, args=(stage, config))
    process.start()
    return process


def finish(process: ForkServerProcess) -> None:
    process.join(240)
    assert process.exitcode == 0


def files(folder: Path) -> int:
    """How many files there are below it now; some may go while they are counted."""
    return sum(len(names) for _, _, names in os.walk(folder))


def killed_again_and_again(tmp_path: Path, rows: Path, kills: int) -> None:
    """The reference, then as many kills as asked for at random moments, then to the end."""
    finish(start(tmp_path / "whole" / "stage", rows, workers=2))
    moments = random.Random(kills)
    killed = 0
    for number in range(kills):
        # A moment is a share of the files still to be written: on any machine, busy or not, there is work left.
        written, whole = files(tmp_path / "killed"), files(tmp_path / "whole")
        moment = written + moments.random() * (whole - written) / (2 + number / 3)
        process = start(tmp_path / "killed" / "stage", rows, workers=2)
        while process.is_alive() and files(tmp_path / "killed") < moment:
            time.sleep(0.002)
        killed += process.is_alive()
        process.kill()
        process.join()
    assert killed >= min(kills, 2)
    finish(start(tmp_path / "killed" / "stage", rows, workers=1))
    folders = [stage_at(tmp_path / name / "stage", made=True) for name in ("whole", "killed")]
    assert results(folders[0]) == results(folders[1])
    assert not list((tmp_path / "killed" / "curation").rglob("*.partial"))


def test_killed_twice(tmp_path: Path, rows: Path) -> None:
    killed_again_and_again(tmp_path, rows, 2)


@pytest.mark.slow
def test_killed_twenty_times(tmp_path: Path, rows: Path) -> None:
    killed_again_and_again(tmp_path, rows, 20)
