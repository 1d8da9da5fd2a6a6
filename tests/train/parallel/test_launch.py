"""Real processes: started, asked to stop, killed and resumed by one alone they train as one process does.

World sizes 1, 2 and 4 with kills between, and the tokens that they train on, are in test_kills.py.
"""

from __future__ import annotations

import inspect
import json
import os
import shutil
import signal
import string
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
from torch._C._distributed_c10d import HashStore

from ingot.checkpoints.checkpoint import load_model
from ingot.recipe.flow import run_recipe
from ingot.recipe.load import load_recipe
from ingot.train.parallel import launch
from ingot.train.parallel import world as world_module
from ingot.train.parallel.world import World
from ingot.workspace.errors import IngotError
from tests.making.processes import finds_processes
from tests.making.rows import write_rows

STEPS, DEADLINE_SECONDS = 36, 120.0
RECIPE = f"""
name: tiny
seed: 1
stages:
  curate: {{sources: [{{files: data.jsonl}}], steps: [{{step: split}}, {{step: quality}}]}}
  tokenizer: {{vocabulary_size: 400}}
  tokenize: {{validation_share: 0.2}}
  pretrain:
    model:
      width: 16
      blocks: {{layer: {{mixer: {{heads: 2, key_value_heads: 1, head_width: 8}}, feed_forward: {{width: 32}}}}}}
      layers: layer*2
    sequence_length: 32
    batch_tokens: 320
    micro_batch_tokens: 64
    steps: {STEPS}
    precision: float32
    device: cpu
    optimizer: {{lr: 0.01, epsilon: 1e-4}}
    phases: [{{until: 1.0, weights: {{all: 1.0}}}}]
    validate_every: 12
    validation_rows: 5
    checkpoints: {{every: 4}}
"""


def write_recipe(folder: Path) -> Path:
    texts = [
        inspect.getsource(value)
        for module in (json, string, textwrap)
        for _, value in sorted(vars(module).items())
        if inspect.isfunction(value) or inspect.isclass(value)
    ]
    write_rows(folder / "data.jsonl", ({"text": text} for text in texts))
    (folder / "tiny.yaml").write_text(RECIPE, encoding="utf-8")
    return folder / "tiny.yaml"


def stage(runs: Path) -> Path:
    return next(runs.glob("tiny/pretrain-*"))


def rows(runs: Path) -> list[dict[str, Any]]:
    found = list(runs.glob("tiny/pretrain-*/metrics.jsonl"))
    lines = found[0].read_text(encoding="utf-8").splitlines() if found else []
    return [json.loads(line) for line in lines[:-1]] + (
        [json.loads(lines[-1])] if lines[-1:] and lines[-1][-1:] == "}" else []
    )


def start(folder: Path, *command: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    return subprocess.Popen(
        [sys.executable, "-m", *command],
        cwd=folder,
        env=environment,
        text=True,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


def wait(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.03)  # conditions read files: more often would slow down the processes that they wait for


def children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()]


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    out, errors = process.communicate(timeout=DEADLINE_SECONDS)
    return process.returncode, out + errors


@pytest.mark.slow
@finds_processes
def test_stopped_killed_and_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    recipe = load_recipe(write_recipe(tmp_path))
    run_recipe(recipe, tmp_path / "one")
    alone = rows(tmp_path / "one")
    assert len(alone) == STEPS and alone[-1]["loss"] < alone[0]["loss"] - 0.5, "it learns"

    command = ("ingot", "run", "tiny.yaml", "--runs", "many")
    first = start(
        tmp_path, *command, "--processes", "2"
    )  # from the raw text on: the first process alone makes the shards
    wait(lambda: len(rows(tmp_path / "many")) > 4, first)
    first.send_signal(signal.SIGTERM)
    code, said = finish(first)
    assert code == 0, said
    assert said.count("its work is saved") == 1 and said.count("stage 1 of 4") == 1, said
    stopped = len(rows(tmp_path / "many"))
    assert stopped < STEPS
    assert (stage(tmp_path / "many") / "steps" / f"step-{stopped:07d}" / "manifest.json").exists(), "nothing is lost"

    second = start(tmp_path, "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", *command)
    wait(lambda: len(rows(tmp_path / "many")) > stopped + 6, second)
    workers = children(second.pid)
    assert len(workers) == 2
    os.kill(workers[1], signal.SIGKILL)
    code, said = finish(second)
    assert code != 0 and not list(stage(tmp_path / "many").glob("DONE")), said
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers), "no process is left behind"

    run_recipe(recipe, tmp_path / "many")
    together = rows(tmp_path / "many")
    assert [row["step"] for row in together] == list(range(STEPS))
    for name, bound in (("loss", 1e-5), ("tokens", 0), ("loss/all", 1e-5), ("gradient_norm", 1e-4)):
        numpy.testing.assert_allclose(
            [row[name] for row in together], [row[name] for row in alone], rtol=bound, err_msg=name
        )
    validated = [
        [row["validation_bits_per_byte"] for row in run if "validation_bits_per_byte" in row]
        for run in (alone, together)
    ]
    assert len(validated[0]) == STEPS // 12
    numpy.testing.assert_allclose(validated[1], validated[0], rtol=1e-5)
    models = [load_model(stage(tmp_path / runs)).state_dict() for runs in ("one", "many")]
    for name, weight in models[0].items():
        numpy.testing.assert_allclose(models[1][name].numpy(), weight.numpy(), rtol=1e-3, atol=1e-5, err_msg=name)
    shutil.rmtree(tmp_path / "many")


def test_a_failed_process_ends_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second process dies by SIGKILL; the first would wait for a minute."""
    program = "import os, signal, time; os.kill(os.getpid(), 9) if os.environ['RANK'] == '1' else time.sleep(60)"
    monkeypatch.setattr(launch, "command", lambda: [sys.executable, "-c", program])
    monkeypatch.setattr(launch, "GRACE_SECONDS", 0.2)
    said: list[str] = []
    began = time.monotonic()
    assert launch.start_processes(2, said.append) == 128 + signal.SIGKILL
    assert said == ["process 1 was killed by signal 9; the others end too"] and time.monotonic() - began < 30


def test_what_the_leader_says_the_others_need_not_say() -> None:
    store = HashStore()
    leader, other = World(0, 2, store), World(1, 2, store)
    later = threading.Timer(0.2, lambda: leader.end(patience=0.0))
    later.start()
    assert other.leader_ends()
    later.join()


def test_orders_are_taken_in_turn() -> None:
    store = HashStore()
    leader, other = World(0, 2, store), World(1, 2, store)
    orders: list[str] = []
    listener = threading.Thread(target=lambda: orders.extend(other.orders()))
    listener.start()
    leader._order("stage pretrain")
    leader._order("stage sft")
    leader.end(patience=10.0)
    listener.join(10)
    assert orders == ["pretrain", "sft"] and store.add("ended", 0) == 1


def test_a_silent_leader_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world_module, "SILENCE_SECONDS", 3.0)
    store = HashStore()
    beating = threading.Event()

    def beat() -> None:
        for _ in range(45):
            store.add("beats", 1)
            time.sleep(0.1)
        beating.set()

    heart = threading.Thread(target=beat)
    heart.start()
    with pytest.raises(IngotError, match="has had no heartbeat of the first one"):
        next(World(1, 2, store).orders())
    assert beating.is_set(), "while the heart beat, it waited"
    heart.join()
