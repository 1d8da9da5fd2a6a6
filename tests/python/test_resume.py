"""A call that was interrupted or killed: the same call goes on where it was, and ends with the same weights."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import ingot
from ingot.workspace.errors import Interrupted
from ingot.workspace.files import read_jsonl
from ingot.workspace.progress import Progress
from tests.python.conftest import TALK, TINY
from tests.python.test_stages import weights

LONG: dict[str, Any] = {**TINY, "steps": 8, "checkpoints": {"every": 2}}


class AtStep(Progress):
    """Sends this process a signal when a step is done."""

    def __init__(self, step: int, number: int) -> None:
        self.step, self.number = step, number

    def advance(self, done: int, **values: Any) -> None:
        if done == self.step:
            os.kill(os.getpid(), self.number)


def test_ctrl_c_saves_and_the_same_call_goes_on(model: Path) -> None:
    with pytest.raises(Interrupted, match=r"its work is saved in .*; the same call resumes it"):
        ingot.sft(model, TALK, progress=AtStep(3, signal.SIGINT), **LONG)
    resumed = ingot.sft(model, TALK, **LONG)
    whole = ingot.sft(model, TALK, name="whole", **LONG)
    assert resumed.stage.status == "done" and weights(resumed.folder) == weights(whole.folder)
    assert [row["step"] for row in resumed.metrics] == list(range(8))


SCRIPT = """
import json, os, signal, sys
import ingot
from ingot.envs.environment import Environment, reward
from ingot.workspace.progress import Progress

TARGET = 10

class Digits(Environment):
    "Say a digit."

    def draw(self, rng):
        number = str(rng.randrange(10))
        return self.ask(f"Say {number}.", number, thinking=False)

    @reward()
    def right(self, episode):
        return float(episode.answer == episode.task.answer)

def brevity(episode):
    return 1 - min(len(episode.answer), TARGET) / TARGET

class Killed(Progress):
    def advance(self, done, **values):
        if len(sys.argv) > 2 and done == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)

result = ingot.rl(
    sys.argv[1], Digits, rewards=[brevity], steps=6, group=2, prompts_per_step=2, max_new_tokens=4, sequence_length=128,
    device="cpu", precision="float32", checkpoints={"every": 2}, progress=Killed(),
    asynchronous={} if len(sys.argv) > 3 else None,
)
print(json.dumps([result.stage.status, str(result.folder)]))
"""


def run_script(model: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A script whose top level trains, without `if __name__ == "__main__"`."""
    Path("script.py").write_text(SCRIPT, encoding="utf-8")
    command = [sys.executable, "script.py", str(model), *words]
    environment = os.environ | {"PYTHONPATH": str(Path(ingot.__file__).parents[1])}
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, env=environment)


def test_a_killed_script_goes_on_when_it_is_run_again(model: Path) -> None:
    """Its environment and its reward are its own; an edit elsewhere in the script changes nothing of the work."""
    killed = run_script(model, "5")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    (folder,) = Path("runs/rl").glob("rl-*")
    assert (folder / "steps").is_dir() and not (folder / "DONE").exists()
    resumed = run_script(model)
    assert resumed.returncode == 0, resumed.stderr
    assert resumed.stdout.strip() == f'["done", "{folder}"]'
    (code,) = Path("runs/rl/code").glob("brevity-*.py")
    assert code.read_text(encoding="utf-8") == textwrap.dedent(
        """\
        # brevity, as the program had it that trained with it

        TARGET = 10

        def brevity(episode):
            return 1 - min(len(episode.answer), TARGET) / TARGET
        """
    )
    interrupted = weights(folder)
    folder.parent.rename("first")
    whole = run_script(model)
    assert whole.stdout.strip() == f'["done", "{folder}"]', whole.stderr
    assert weights(folder) == interrupted


def test_what_a_script_defines_reaches_samplers_in_processes_of_their_own(model: Path) -> None:
    """Spawned processes load the environment from its file; they do not run the script once more."""
    done = run_script(model, "0", "asynchronous")
    assert done.returncode == 0, done.stderr
    status, folder = json.loads(done.stdout)
    rewards = [row["reward/brevity"] for row in read_jsonl(Path(folder) / "metrics.jsonl")]
    assert status == "done" and len(rewards) == 6 and all(0 <= each <= 1 for each in rewards)
