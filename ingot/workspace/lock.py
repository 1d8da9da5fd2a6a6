"""The lock of a run folder: one process at a time works in it.

The lock is `flock` on the file `.lock`: the kernel gives it back when the process ends, however it ends, so a file left
by a killed process is no obstacle. The file's content only names the holder; no decision depends on it.
"""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from ingot.workspace.errors import RunLocked

LOCK = ".lock"
READ_ATTEMPTS = 5  # the holder writes its name just after it got the lock
READ_PAUSE_SECONDS = 0.02


def this_command() -> str:
    """The command line of this process, the program without its path."""
    return shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])


@contextmanager
def lock_folder(folder: Path, command: str | None = None) -> Iterator[int]:
    """Hold the lock of `folder` (made if it is not there) while inside; raises `RunLocked` at once if it is taken.

    Gives the lock's descriptor: a process that inherits it holds the lock too, until both have ended.
    """
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _refusal(folder) from None
        holder = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "command": this_command() if command is None else command,
            "started": datetime.now().astimezone().isoformat(timespec="seconds"),
        }
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, (json.dumps(holder) + "\n").encode(), 0)
        yield descriptor
    finally:
        os.close(descriptor)


def _holder(folder: Path) -> dict[str, Any] | None:
    """The holder of the lock, as far as the file says."""
    for _ in range(READ_ATTEMPTS):
        try:
            holder = json.loads((folder / LOCK).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            holder = None
        if isinstance(holder, dict) and {"pid", "host", "command", "started"} <= holder.keys():
            return holder
        time.sleep(READ_PAUSE_SECONDS)
    return None


def _refusal(folder: Path) -> RunLocked:
    holder = _holder(folder)
    if holder is None:
        return RunLocked("another process works here", place=str(folder), fix="wait until it ends")
    pid, host = holder["pid"], holder["host"]
    problem = f"process {pid} on {host} works here since {holder['started']}: {holder['command']}"
    fix = f"wait until it ends, stop it with `kill {pid}`, or give another --runs folder"
    if host == socket.gethostname() and not _alive(int(pid)):
        problem += " (it has ended, but a process that it started still runs)"
        fix = f"end what process {pid} left running: `fuser {folder / LOCK}` names it"
    return RunLocked(problem, place=str(folder), fix=fix)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
