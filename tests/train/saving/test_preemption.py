"""SIGTERM through the real command line: the last step is saved, the exit code is 0, and the rest is as if nothing happened."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import ingot
from ingot.checkpoints.checkpoint import load_model
from ingot.recipe.flow import run_recipe
from ingot.recipe.load import load_recipe
from ingot.workspace.files import read_json
from tests.train.pretraining import CONFIG
from tests.train.toy import records, same_weights, stage_folder

STEPS, STOP = 30, 12
DEADLINE_SECONDS = 120.0


def write_recipe(folder: Path) -> Path:
    words = [f"the {first} {second} of a long run" for first in "abcdefgh" for second in ("start", "middle", "end")]
    texts = [f"{number} {word} is saved and goes on. " * 4 for number, word in enumerate(words)]
    (folder / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    pretrain = {
        **CONFIG,
        "steps": STEPS,
        "checkpoints": {"every": 10},
        "phases": [{"until": 1.0, "weights": {"all": 1.0}}],
    }
    recipe = {
        "name": "small",
        "seed": 1,
        "stages": {
            "curate": {
                "sources": [{"files": str(folder / "texts.jsonl")}],
                "steps": [{"step": "split"}],
            },
            "tokenizer": {"vocabulary_size": 300},
            "tokenize": {"sources": {"all": {}}},
            "pretrain": pretrain,
        },
    }
    (folder / "recipe.yaml").write_text(json.dumps(recipe))  # JSON is YAML
    return folder / "recipe.yaml"


def start(recipe: Path, runs: Path) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": str(Path(ingot.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "ingot", "run", str(recipe), "--runs", str(runs)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)


def rows(stage: Path) -> list[dict[str, Any]]:
    lines = (stage / "metrics.jsonl").read_text().split("\n") if (stage / "metrics.jsonl").exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def stage_of(runs: Path) -> Path:
    return next(iter(runs.glob("small/pretrain-*")), runs / "not there yet")


def stop_at(process: subprocess.Popen[str], runs: Path, step: int, number: signal.Signals) -> tuple[int, str]:
    """Send the signal when the step is logged; exit code and output."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while len(rows(stage_of(runs))) <= step:
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            raise AssertionError(process.communicate()[0])
        time.sleep(0.005)
    process.send_signal(number)
    output, _ = process.communicate(timeout=DEADLINE_SECONDS)
    return process.returncode, output


def test_preemption_loses_nothing(tmp_path: Path) -> None:
    recipe, whole, stopped = write_recipe(tmp_path), tmp_path / "whole", tmp_path / "stopped"
    run_recipe(load_recipe(recipe), whole)
    shutil.copytree(whole, stopped)  # the stages before it are reused
    shutil.rmtree(stage_of(stopped))
    returned, output = stop_at(start(recipe, stopped), stopped, STOP, signal.SIGTERM)
    assert returned == 0, output
    assert "to resume: ingot run" in output
    newest = max((stage_of(stopped) / "steps").iterdir())
    last = rows(stage_of(stopped))[-1]["step"]
    assert STOP <= last < STEPS - 1
    assert read_json(newest / "training.json")["step"] == last + 1, "the last step is on disk"
    run_recipe(load_recipe(recipe), stopped)
    expected, found = (records(stage_folder(stage_of(runs))) for runs in (whole, stopped))
    assert [row["step"] for row in found] == list(range(STEPS))
    assert [row["loss"] for row in found] == [row["loss"] for row in expected]
    assert same_weights(load_model(stage_of(stopped)).state_dict(), load_model(stage_of(whole)).state_dict())
