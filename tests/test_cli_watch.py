"""`ingot run --watch` with a real pre-training run that is killed, made to hang, and fed bad data."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from ingot.checkpoints.checkpoint import load_model
from ingot.cli import main
from ingot.train.guards.heartbeat import read_heartbeats
from ingot.train.guards.watchdog import LOG
from ingot.train.pretrain import run as run_stage
from ingot.train.pretrain_config import PretrainConfig
from ingot.workspace.files import read_jsonl
from ingot.workspace.progress import Progress
from ingot.workspace.stage import StageFolder
from tests.making.stages import stage_folder
from tests.train.pretraining import CONFIG, last_step, write_inputs
from tests.train.toy import records, same_weights

DEADLINE_SECONDS = 240.0
STEPS = 24


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_inputs(tmp_path_factory.mktemp("inputs"))


def write_recipe(folder: Path, inputs: dict[str, Path]) -> Path:
    stage: dict[str, Any] = {
        **CONFIG,
        "steps": STEPS,
        "inputs": {role: str(path) for role, path in inputs.items()},
        "guards": {"heartbeat_seconds": 0.05},
    }
    recipe = folder / "recipe.yaml"
    recipe.write_text(yaml.safe_dump({"name": "watched", "seed": 7, "stages": {"pretrain": stage}}))
    return recipe


def ingot(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "ingot", "run", str(folder / "recipe.yaml"), "--runs", str(folder / "runs")]
    return subprocess.Popen([*command, *arguments], stderr=subprocess.PIPE, text=True)


def the_run(folder: Path, process: subprocess.Popen[str], after: set[int], step: int) -> int:
    """The process of the training once a new one has reached this step."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        assert process.poll() is None, process.communicate(timeout=10)[1]
        assert time.monotonic() < deadline
        for path in (folder / "runs" / "watched").glob("pretrain-*"):
            pids = {int(beat["pid"]) for beat in read_heartbeats(path)} - after
            if pids and last_step(path) >= step:
                return pids.pop()
        time.sleep(0.002)


@pytest.mark.slow
def test_a_run_that_is_killed_and_then_hangs_ends_as_if_nothing_had_happened(
    inputs: dict[str, Path], tmp_path: Path
) -> None:
    write_recipe(tmp_path, inputs)
    process = ingot(tmp_path, "--watch", "--hang-after", "3")
    first = the_run(tmp_path, process, set(), 6)
    os.kill(first, signal.SIGKILL)
    second = the_run(tmp_path, process, {first}, 12)
    os.kill(second, signal.SIGSTOP)  # as a hung device or file system would look
    _, said = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode == 0, said
    events = read_jsonl(tmp_path / "runs" / "watched" / LOG)
    assert [event["event"] for event in events] == ["start", "restart", "start", "hang", "restart", "start", "end"]
    assert "it was killed by SIGKILL" in said and "no sign of life for" in said
    stage = next((tmp_path / "runs" / "watched").glob("pretrain-*"))
    calm = StageFolder(
        tmp_path / "calm", seed=yaml.safe_load((stage / "recipe.yaml").read_text())["seed"], progress=Progress()
    )
    run_stage(PretrainConfig.model_validate(CONFIG | {"steps": STEPS}), inputs, calm)
    rows = records(stage_folder(stage))
    assert [row["step"] for row in rows] == list(range(STEPS)) and rows == records(calm)
    assert same_weights(load_model(stage).state_dict(), load_model(calm.path).state_dict())


def test_bad_data_is_not_tried_again(
    inputs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A shard that is cut off is an error that explains itself: it would be the same the next time."""
    recipe = write_recipe(tmp_path, inputs)
    content = yaml.safe_load(recipe.read_text())
    content["stages"]["pretrain"]["inputs"]["shards"] = str(tmp_path / "shards")
    recipe.write_text(yaml.safe_dump(content))
    for file in sorted(inputs["shards"].rglob("*")):
        if file.is_file():
            copy = tmp_path / "shards" / file.relative_to(inputs["shards"])
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(file.read_bytes() if file.suffix == ".json" else file.read_bytes()[:-2])
    monkeypatch.setattr(sys, "argv", ["ingot", "run", str(recipe), "--runs", str(tmp_path / "runs"), "--watch"])
    with pytest.raises(SystemExit) as ended:  # the watchdog runs here, what it watches in a process
        main()
    said = capfd.readouterr().err
    assert ended.value.code == 2, said
    assert "error: " in said and "no restart" in said
    assert [event["event"] for event in read_jsonl(tmp_path / "runs" / "watched" / LOG)] == ["start", "end"]


def test_any_command_can_be_watched(tmp_path: Path) -> None:
    tried = str(tmp_path / "tried")
    body = f"import pathlib, sys; it = pathlib.Path({tried!r}); seen = it.exists(); it.touch(); sys.exit(not seen)"
    command = [sys.executable, "-m", "ingot", "watch", str(tmp_path / "run"), "--", sys.executable, "-c", body]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    assert "it ended with exit code 1; starting it again in 2 s" in done.stderr
    nothing = subprocess.run(command[:5], capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False)
    assert nothing.returncode == 2 and "no command to watch" in nothing.stderr


def test_a_command_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["ingot", "watch", str(tmp_path / "run"), "--", "torchrnu", "-m", "ingot"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("error: there is no program torchrnu to start\n  fix: ")


def test_a_restart_leaves_from_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`--from` would throw away at every restart what was saved; what the watchdog has read is refused without it."""
    import ingot.cli.watch as watching

    seen: list[Any] = []
    monkeypatch.setattr(sys, "argv", shlex.split("ingot run r.yaml --watch --hang-after 9 --from pretrain --set a.b=1"))

    def watch(first: list[str], again: list[str], *rest: object) -> None:
        seen.extend([first[3:], again[3:]])
        raise SystemExit

    monkeypatch.setattr(watching, "watch", watch)
    with pytest.raises(SystemExit):
        watching.watch_this(tmp_path, 1.0)
    assert seen == [["run", "r.yaml", "--from", "pretrain", "--set", "a.b=1"], ["run", "r.yaml", "--set", "a.b=1"]]
