"""One process at a time in a folder; a dead one does not count."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import ingot
from ingot.workspace.errors import RunLocked
from ingot.workspace.files import read_json
from ingot.workspace.lock import LOCK, lock_folder

HOLD = """
import os, sys, time
from pathlib import Path
from ingot.workspace.lock import lock_folder
with lock_folder(Path(sys.argv[1]), "ingot run recipe.yaml"):
    if len(sys.argv) > 2 and os.fork() == 0:
        time.sleep(30)  # a worker that outlives its parent
        os._exit(0)
    print("held", os.getpid(), flush=True)
    time.sleep(30)
"""


def hold(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": str(Path(ingot.__file__).parents[1])}
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder), *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith("held")
    return process


def test_the_second_is_refused_and_the_first_is_named(tmp_path: Path) -> None:
    process = hold(tmp_path)
    try:
        with pytest.raises(RunLocked) as caught, lock_folder(tmp_path):
            raise AssertionError("two processes hold the lock")
        holder = read_json(tmp_path / LOCK)
        assert (holder["pid"], holder["host"]) == (process.pid, socket.gethostname())
        assert str(caught.value) == (
            f"{tmp_path}: process {process.pid} on {socket.gethostname()} works here since {holder['started']}: "
            f"ingot run recipe.yaml\n"
            f"  fix: wait until it ends, stop it with `kill {process.pid}`, or give another --runs folder"
        )
    finally:
        process.kill()
        process.communicate(timeout=10)
    with lock_folder(tmp_path):  # the kernel gave it back
        assert read_json(tmp_path / LOCK)["pid"] == os.getpid()


def test_an_orphan_of_a_killed_process_is_explained(tmp_path: Path) -> None:
    process = hold(tmp_path, "fork")
    process.kill()
    process.wait(timeout=10)
    try:
        with (
            pytest.raises(RunLocked, match="it has ended, but a process that it started still runs"),
            lock_folder(tmp_path),
        ):
            raise AssertionError("a worker of the dead process still writes here")
    finally:
        os.killpg(process.pid, 9)
    deadline = time.monotonic() + 10
    while True:
        try:
            with lock_folder(tmp_path):
                break
        except RunLocked:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_released_at_the_end_and_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="inside"), lock_folder(tmp_path / "new" / "run"):
        raise ValueError("inside")
    with lock_folder(tmp_path / "new" / "run"), pytest.raises(RunLocked), lock_folder(tmp_path / "new" / "run"):
        raise AssertionError("not even this process gets it twice")


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": 1}'])
def test_nonsense_in_the_file_is_no_obstacle(tmp_path: Path, content: str) -> None:
    (tmp_path / LOCK).write_text(content)
    with lock_folder(tmp_path):
        (tmp_path / LOCK).write_text(content)
        with pytest.raises(RunLocked, match="another process works here"), lock_folder(tmp_path):
            raise AssertionError("the content does not decide")
