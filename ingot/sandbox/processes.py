"""Kills a process and all that is left in its process group."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys

SECONDS = 10.0  # for the kernel to end what was killed


def has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether the process has ended. On Linux it stays a zombie, so that its number still names its group in `end`."""
    if process.returncode is None and sys.platform == "linux":
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    return process.poll() is not None


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and its group (it was started with `start_new_session=True`), and wait for it."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # PermissionError: macOS, for a group of zombies
            os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=SECONDS)
