"""Tasks for the tests of the engine, importable by worker processes."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ingot.workspace.errors import DataError


@dataclass(frozen=True)
class Text:
    """An item."""

    key: str
    text: str
    bytes: int = 10_000_000  # never so small that it would be done in the calling process


def upper(folder: Path, item: Text, options: dict[str, Any] | None) -> dict[str, Any]:
    """Writes the text in capitals; the report names the process."""
    (folder / "out.txt").write_text(item.text.upper() + (options or {}).get("suffix", ""))
    return {"length": len(item.text), "process": os.getpid()}


def die_once(folder: Path, item: Text, options: dict[str, Any]) -> dict[str, Any]:
    """Kills its process the first time, leaving half a file behind."""
    mark = Path(options["marks"]) / item.key
    (folder / "out.txt").write_text("half")
    if item.text == "deadly" and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return upper(folder, item, None)


def always_die(folder: Path, item: Text, options: None) -> dict[str, Any]:
    """Kills its process for some items, however often they are tried."""
    if item.text == "deadly":
        os.kill(os.getpid(), signal.SIGKILL)
    return {}


def bad_data(folder: Path, item: Text, options: None) -> dict[str, Any]:
    """An error for a person."""
    raise DataError("the text is bad", place=item.key, fix="write a better one")


def bug(folder: Path, item: Text, options: None) -> dict[str, Any]:
    """An error for a programmer."""
    return {"value": 1 // len(item.text[:0])}


def sleep(folder: Path, item: Text, options: None) -> dict[str, Any]:
    """Takes longer than a test."""
    time.sleep(60)
    return {}
