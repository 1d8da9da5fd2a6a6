"""`--processes N`: starts this command N times on this machine, passes signals on, and ends with its result.

This is torchrun on one machine, without its wait at the end: asked to stop (SIGTERM), the processes save together, and the exit
code is that of the first. When a process fails, the others cannot go on without it; they get a moment to end by themselves and
are then killed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from ingot.workspace.errors import RecipeError
from ingot.workspace.interrupt import on_signals

RENDEZVOUS = "INGOT_RENDEZVOUS"  # the file through which our processes find each other; those of torchrun use its store
PARENT = "INGOT_PARENT"  # the process that started ours
POLL_SECONDS = 0.05
GRACE_SECONDS = 15.0


def in_world() -> bool:
    """Whether this process is one of several that torchrun (or we) started."""
    return "RANK" in os.environ and world_size() > 1


def is_ours() -> bool:
    """Whether `start_processes` started this process."""
    return PARENT in os.environ and in_world()


def world_size() -> int:
    """How many there are."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def start_processes(count: int, say: Callable[[str], None]) -> int:
    """Run this very command in `count` processes; returns the exit code. Called in one of torchrun's it is an error."""
    if in_world():
        raise RecipeError(f"torchrun has started {world_size()} processes already", fix="leave --processes out")
    with tempfile.TemporaryDirectory(prefix="ingot-") as folder:
        processes = [_start(rank, count, Path(folder) / "rendezvous") for rank in range(count)]
        try:
            with on_signals(partial(_pass_on, processes)):
                return _wait(processes, say)
        finally:
            for process in processes:
                process.kill()
                process.wait()


def command() -> list[str]:
    """This command, to be started again."""
    return [sys.executable, "-m", "ingot", *sys.argv[1:]]


def _start(rank: int, count: int, file: Path) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ,
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        RENDEZVOUS: file.as_uri(),
        PARENT: str(os.getpid()),
    }
    environment.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // count)))
    # a session of its own: Ctrl-C reaches it only through this process, once
    return subprocess.Popen(command(), env=environment, start_new_session=True)


def _pass_on(processes: Sequence[subprocess.Popen[bytes]], number: int) -> None:
    """A signal goes to those that live."""
    for process in processes:
        if process.poll() is None:
            process.send_signal(number)


def _wait(processes: Sequence[subprocess.Popen[bytes]], say: Callable[[str], None]) -> int:
    """Wait until all have ended, or one has failed and the others had their moment; returns the first failure, or 0."""
    failed, deadline = 0, float("inf")
    while time.monotonic() < deadline:
        codes = [process.poll() for process in processes]
        if not failed:
            rank, failed = next(((rank, code) for rank, code in enumerate(codes) if code), (0, 0))
            if failed:
                say(_describe(rank, failed))
                deadline = time.monotonic() + GRACE_SECONDS
        if None not in codes:
            break
        time.sleep(POLL_SECONDS)
    return 128 - failed if failed < 0 else failed


def _describe(rank: int, code: int) -> str:
    how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    return f"process {rank} {how}; the others end too"
