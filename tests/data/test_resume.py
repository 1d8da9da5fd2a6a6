"""Killed at any moment and begun again: the same bytes."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .dirty import write_rows
from .test_curate import results, stage_at

REPOSITORY = Path(__file__).resolve().parents[2]

SCRIPT = """
import json, sys
from pathlib import Path
from ingot.data.config import CurateConfig
from ingot.data.curate import run as run_stage
from ingot.workspace.progress import Progress
from ingot.workspace.stage import StageFolder

folder = Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
config = CurateConfig(**json.loads(sys.argv[2]))
print("begins", flush=True)
run_stage(config, {}, StageFolder(path=folder, seed=1, progress=Progress()))
"""

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


def start(stage: Path, rows: Path, **options: object) -> subprocess.Popen[str]:
    """Begin a curation in a process of its own; returns when the stage has begun."""
    config = {"sources": [{"files": f"{rows}/*.jsonl"}], "steps": STEPS, **options}
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(stage), json.dumps(config)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begins\n"
    return process


def finish(process: subprocess.Popen[str]) -> None:
    with process:
        assert process.wait(timeout=240) == 0


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
        with start(tmp_path / "killed" / "stage", rows, workers=2) as process:
            while process.poll() is None and files(tmp_path / "killed") < moment:
                time.sleep(0.002)
            killed += process.poll() is None
            process.send_signal(signal.SIGKILL)
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
