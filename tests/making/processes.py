"""Other processes, and waiting for what they or other threads do."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

finds_processes = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds the processes in /proc")
"""For a test that asks for `alive` or `descendants`."""


def wait_until(
    condition: Callable[[], object], seconds: float = 20.0, otherwise: str = "it did not happen in time"
) -> None:
    """Wait until `condition` is true; after so many seconds fail with the words `otherwise`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.01)


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def descendants(pid: int) -> list[int]:
    """Processes below one, whichever of its threads started them."""
    found = [path.read_text(encoding="utf-8") for path in Path(f"/proc/{pid}/task").glob("*/children")]
    local = [int(each) for children in found for each in children.split()]
    return [*local, *(below for each in local for below in descendants(each))]
