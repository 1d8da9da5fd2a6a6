"""Run a program that a model wrote, in a process of its own that can be killed.

The child has no input, an empty environment, a temporary working folder, limits on processor time, memory and file size,
and a deadline after which its whole process group is killed. Where Linux lets an ordinary user make namespaces it
has no network either. That keeps accidents in; it is no jail for an attacker: run untrusted writers on a machine of their own.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

LARGEST_OUTPUT = 10_000
WALL_FACTOR = 2.0  # wall-clock seconds a processor second: the machine may be busy
START_SECONDS = 5.0


@dataclass(frozen=True)
class Outcome:
    """What a program printed, or why it did not end well."""

    output: str
    problem: str = ""


@cache
def without_network() -> tuple[str, ...]:
    """The command in front of one that is to have no network; empty where that cannot be had."""
    unshare = shutil.which("unshare")
    if unshare is None:
        return ()
    command = (unshare, "--user", "--net", "--map-root-user")
    works = subprocess.run([*command, "true"], capture_output=True, timeout=10, check=False).returncode == 0
    return command if works else ()


def run_program(program: str, seconds: float, memory: int) -> Outcome:
    """Run Python source; its standard output if it ended with status 0 in time."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.py"
        path.write_text(program, encoding="utf-8")

        def limit() -> None:
            whole = int(seconds) + 1
            resource.setrlimit(resource.RLIMIT_CPU, (whole, whole + 1))
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
            resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

        command = [*without_network(), sys.executable, "-I", "-S", "-B", str(path)]
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=folder,
            env={"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"},
            start_new_session=True,
            preexec_fn=limit,
        )
        try:
            output, errors = child.communicate(timeout=WALL_FACTOR * seconds + START_SECONDS)
        except subprocess.TimeoutExpired:
            return Outcome("", "took too long")
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)  # whatever it started
            child.wait(timeout=10)
        if child.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
            return Outcome("", "took too long")
        if child.returncode != 0:
            last = errors.decode("utf-8", "replace").strip().split("\n")[-1][:200]
            return Outcome("", f"ended with status {child.returncode}: {last}")
        if len(output) > LARGEST_OUTPUT:
            return Outcome("", "printed too much")
        return Outcome(output.decode("utf-8", "replace").strip())
