"""Stores the results of tasks: folders named by what they were made from, whole or absent.

    FOLDER/NAME/KEY/{files…, report.json}

A task fills a folder with a temporary name and renames it when it is done: a process killed at any moment leaves no
half of a result. `report.json` holds the size and the sha256 of every file, so that a result that was damaged later is
recognised and computed again. Files are not flushed one by one (thousands of small tasks would wait for the disk): what
a power cut takes away is found by its size, too.

Invariant: a folder that has its final name is never written to again.
"""

from __future__ import annotations

import json
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ingot.workspace.files import PARTIAL, file_sha256, read_json

REPORT = "report.json"


@dataclass
class Commit:
    """A folder that is being filled; `report` is what is worth knowing about it afterwards (JSON-like, small)."""

    folder: Path
    report: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class FinishedTask:
    """A finished task: where its files are, and its report."""

    key: str
    folder: Path
    report: dict[str, Any]
    seconds: float = 0.0  # processor time of the worker that computed it, whenever that was
    files: dict[str, tuple[int, str]] = field(default_factory=dict)  # size and sha256

    def file(self, name: str) -> Path:
        """A file that the task wrote."""
        return self.folder / name

    def checksum(self, name: str) -> str:
        """The sha256 of a file: the name of its content."""
        return self.files[name][1]


@contextmanager
def commit(target: Path) -> Iterator[Commit]:
    """Yield a temporary folder; on success it becomes `target`, on an exception it is removed."""
    target.parent.mkdir(parents=True, exist_ok=True)
    # A name of its own: a task that was given up and is still running somewhere must not write into its successor's.
    temporary = target.with_name(f"{target.name}.{uuid.uuid4().hex[:12]}{PARTIAL}")
    temporary.mkdir()
    began = time.process_time()
    try:
        made = Commit(temporary)
        yield made
        files = {
            path.relative_to(temporary).as_posix(): (path.stat().st_size, file_sha256(path))
            for path in sorted(temporary.rglob("*"))
            if path.is_file()
        }
        record = {"seconds": round(time.process_time() - began, 4), "files": files, "report": made.report}
        (temporary / REPORT).write_text(json.dumps(record, ensure_ascii=False), encoding="utf-8")
        try:
            temporary.replace(target)
        except OSError:  # a twin of this task was faster: the same key, the same bytes
            if not (target / REPORT).exists():
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def finished(target: Path, *, contents: bool = False) -> FinishedTask | None:
    """The result in `target`; None if there is none or it is damaged (then it is removed: see `damage`)."""
    try:
        record = read_json(target / REPORT)
        files = {name: (size, checksum) for name, (size, checksum) in record["files"].items()}
        done = FinishedTask(target.name, target, record["report"], record["seconds"], files)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return None if damage(done, contents=contents) else done


def damage(done: FinishedTask, *, contents: bool) -> str | None:
    """What is wrong with the files of a result; None if they are as they were written."""
    for name, (size, checksum) in done.files.items():
        path = done.folder / name
        try:
            if path.stat().st_size != size:
                return f"{name} has {path.stat().st_size:,} bytes instead of {size:,}"
            if contents and file_sha256(path) != checksum:
                return f"the bytes of {name} have changed"
        except OSError as error:
            return f"{name}: {error.strerror}"
    return None


def discard(target: Path) -> None:
    """Remove a result, or what is left of one, in one step."""
    if target.exists():
        aside = target.with_name(f"{target.name}.{uuid.uuid4().hex[:12]}{PARTIAL}")
        target.replace(aside)
        shutil.rmtree(aside, ignore_errors=True)


def sweep(folder: Path) -> None:
    """Remove what killed tasks left behind. Only while no task runs."""
    for path in folder.glob(f"*/*{PARTIAL}"):
        shutil.rmtree(path, ignore_errors=True)
