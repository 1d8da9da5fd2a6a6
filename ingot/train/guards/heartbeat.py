"""Writes and reads heartbeat.json, with which a training loop shows that it is alive.

The loop itself rewrites the file in the stage's folder, at most every few seconds: a thread would go on writing while the loop
hangs. What makes the data of a step beats too where that takes long, between two steps of its own: sampling (post/stage.py). The
file says what the loop is about to do and how long a step takes, so that the watchdog (watchdog.py) knows how long a silence is
normal.
"""

from __future__ import annotations

import json
import os
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from ingot.workspace.files import PARTIAL

HEARTBEAT = "heartbeat.json"

Doing = Literal["start", "data", "step", "checkpoint", "validation", "end"]
LONG: tuple[Doing, ...] = (
    "start",
    "checkpoint",
    "validation",
    "end",
)  # written at once: it may be long before the next beat


class Heartbeat:
    """Writes the file; only the first rank has one that does."""

    def __init__(self, folder: Path, seconds: float, *, writes: bool = True) -> None:
        self.path, self.seconds, self.writes = folder / HEARTBEAT, seconds, writes
        self.written = -float("inf")
        self.content: dict[str, Any] = {"pid": os.getpid(), "host": socket.gethostname(), "every": seconds}

    def beat(self, doing: Doing, **numbers: float) -> None:
        """The loop is about to do this. `numbers` stay until others come: step, tokens_per_second, step_seconds."""
        self.content |= {"doing": doing, **numbers}
        now = time.monotonic()
        if not self.writes or (now - self.written < self.seconds and doing not in LONG):
            return
        self.written = now
        self.path.parent.mkdir(parents=True, exist_ok=True)
        partial = self.path.with_name(HEARTBEAT + PARTIAL)
        partial.write_text(json.dumps(self.content | {"time": time.time()}), encoding="utf-8")
        partial.replace(self.path)  # whole or absent; it need not survive a power cut


def read_heartbeats(folder: Path) -> list[dict[str, Any]]:
    """The heartbeats in `folder` and in the stages' folders below it. One that cannot be read, as after a power cut, is none."""
    found = []
    for path in (folder / HEARTBEAT, *folder.glob(f"*/{HEARTBEAT}")):
        with suppress(OSError, ValueError):
            found.append(json.loads(path.read_text(encoding="utf-8")))
    return found
