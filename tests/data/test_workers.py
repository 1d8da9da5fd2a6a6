"""Helper processes: the same results in the same order, and no helper that is left over."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ingot.data.workers import CHUNK_WEIGHT, Workers, chunks
from ingot.workspace.errors import DataError, Interrupted
from ingot.workspace.interrupt import StopSignal

REPOSITORY = Path(__file__).resolve().parents[2]


def lengths_and_process(texts: list[str], extra: int) -> list[tuple[int, int]]:
    return [(len(text) + extra, os.getpid()) for text in texts]


def die(texts: list[str]) -> list[int]:
    os._exit(3)


def test_results_are_those_of_a_loop_in_order() -> None:
    texts = ["x" * (n % 7 * 50_000) for n in range(40)]
    with Workers(StopSignal(), processes=2, small=0) as workers:
        results = workers.map(lengths_and_process, texts, len, 5)
    assert [length for length, _ in results] == [len(text) + 5 for text in texts]
    processes = {process for _, process in results}
    assert os.getpid() not in processes


def test_small_work_stays_here() -> None:
    with Workers(StopSignal(), processes=2) as workers:
        assert workers.map(lengths_and_process, ["a", "bc"], len, 0) == [(1, os.getpid()), (2, os.getpid())]
        assert workers.map(lengths_and_process, [], len, 0) == []
        assert workers.pool is None


def test_a_stop_ends_the_work() -> None:
    stop = StopSignal()
    stop.request()
    with pytest.raises(Interrupted):
        Workers(stop, processes=1).map(lengths_and_process, ["a"], len, 0)


def test_a_dead_helper_is_an_error_with_a_name() -> None:
    with (
        Workers(StopSignal(), processes=2, small=0) as workers,
        pytest.raises(DataError, match=r"a helper process died \(die\)(.|\n)*fix: lower max_bytes"),
    ):
        workers.map(die, ["a"], len)


def test_chunks_are_consecutive_and_of_similar_weight() -> None:
    items = [CHUNK_WEIGHT // 3] * 10
    pieces = list(chunks(items, lambda weight: weight))
    assert [len(piece) for piece in pieces] == [3, 3, 3, 1]


SCRIPT = """
import os, sys, time
from ingot.data.workers import Workers
from ingot.workspace.interrupt import StopSignal
from tests.data.test_workers import lengths_and_process
print("main", flush=True)
with Workers(StopSignal(), processes=2, small=0) as workers:
    results = workers.map(lengths_and_process, ["x" * 600_000] * 4, len, 0)
    print(*sorted({process for _, process in results}), flush=True)
    time.sleep(float(sys.argv[1]))
"""


def test_a_script_without_a_main_guard_and_a_killed_one(tmp_path: Path) -> None:
    """The script's top level runs once although helpers start; killed with SIGKILL it leaves no helper behind."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen(
        [sys.executable, str(script), "60"],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "main\n"
        helpers = [int(word) for word in process.stdout.readline().split()]
        assert helpers
        process.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 20
    while any(map(is_alive, helpers)):
        assert time.monotonic() < deadline, "helpers outlived the main process"
        time.sleep(0.05)


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{process}/stat")
    return not (state.exists() and state.read_text().rsplit(")", 1)[1].split()[0] == "Z")  # a zombie is gone
