"""An ablation over toy stages in processes: `toy_lab.py job JOB.json` is a run, `toy_lab.py lab FILE` the laboratory.

Each stage notes in calls.txt that it began and that it ended, so that a test can count what ran, also after a kill.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ingot.lab.ablation import plan_ablation
from ingot.lab.run_ablation import run_ablation
from ingot.lab.worker import work
from ingot.workspace.errors import CheckFailed
from ingot.workspace.files import read_json, write_json
from ingot.workspace.stage import StageFolder
from tests.recipe import toy

WORKER = (sys.executable, "-m", "tests.lab.toy_lab", "job")
CALLS = Path("calls.txt")


def train(config: toy.TrainConfig, inputs: Mapping[str, Any], folder: StageFolder) -> dict[str, Any]:
    """A loss that falls with the learning rate, and the noise of the seed; `fail_at` 7 is death by a signal, 6 an error."""
    _note("begin", folder)
    if config.fail_at == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    if config.fail_at == 6:
        raise CheckFailed("the toy failed as told", place=str(folder.path))
    state = folder.path / "state.json"
    done = read_json(state) if state.exists() else 0
    loss = 0.0
    for step in range(done, config.steps):
        folder.stop.check()
        time.sleep(config.pause)
        loss = 2 + 0.1 / (step + 1) + 0.01 * (folder.seed * 7 % 5) - config.optimizer.learning_rate
        folder.metrics.append(step, {"loss": loss, "tokens_per_second": 100.0, "memory_gib": 1.0})
        write_json(state, step + 1)
    loss = loss or 2.0
    toy._write(folder, "checkpoint", [[], [int(1000 * loss)], config.optimizer.learning_rate])
    _note("end", folder)
    return {"loss": loss, "steps": config.steps}


def _note(what: str, folder: StageFolder) -> None:
    with CALLS.open("a") as file:
        file.write(f"{what} {folder.path.name}\n")


TABLE = toy.changed("train", run=train)


def calls(what: str) -> list[str]:
    """The stages that began, or ended, in order."""
    lines = CALLS.read_text().splitlines() if CALLS.exists() else []
    return [line.split()[1] for line in lines if line.startswith(what)]


if __name__ == "__main__":
    command, file = sys.argv[1], Path(sys.argv[2])
    if command == "job":
        raise SystemExit(work(read_json(file), table=TABLE))
    run_ablation(plan_ablation(file, TABLE), Path("runs"), jobs=2, worker=WORKER)
