"""Work that the processes of pytest-xdist share: the first one does it, the others wait and find it done."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], Path]) -> Path:
    """What `make` made in a folder of this name: the path that it returned. Tests must not write below it."""
    base = factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    shared.mkdir(exist_ok=True)
    with (shared / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        known = shared / "path"
        if not known.exists():
            known.write_text(str(make(shared)), encoding="utf-8")
        return Path(known.read_text(encoding="utf-8"))
