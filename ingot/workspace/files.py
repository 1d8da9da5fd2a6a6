"""Writes files and folders atomically: they are either whole or absent.

A file or folder is written under a temporary name in the same folder, flushed to disk, and renamed. The rename is
atomic, so that a process killed at any moment leaves either the old state or the new one, never half of it. Temporary
names carry the suffix `.partial`; such a file may be deleted when no process writes it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ingot.workspace.errors import ArtifactError

PARTIAL = ".partial"
FINGERPRINT_BYTES = 64_000_000  # below this a file is read whole to see whether it changed: a tenth of a second


def fsync_folder(folder: Path) -> None:
    """Make a rename inside `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fsync_file(path: Path) -> None:
    """Make the content of `path` durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to; on success it becomes `path`, on an exception it is removed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + PARTIAL)
    try:
        yield temporary
        fsync_file(temporary)
        temporary.replace(path)
        fsync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder to fill; on success it becomes `path`, replacing an older one.

    Every file in it is flushed before the rename, so that after a power cut a folder with the final name is complete.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + PARTIAL)
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        yield temporary
        for file in sorted(temporary.rglob("*")):
            if file.is_file():
                fsync_file(file)
        if path.exists():  # a rename cannot replace a non-empty folder: move the old one away first
            aside = path.with_name(path.name + ".old" + PARTIAL)
            shutil.rmtree(aside, ignore_errors=True)
            path.replace(aside)
            temporary.replace(path)
            shutil.rmtree(aside)
        else:
            temporary.replace(path)
        fsync_folder(path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path` atomically."""
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write `value` as readable JSON to `path` atomically."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    """Read a JSON file; the inverse of `write_json`. What is no JSON, or nested beyond reason, raises ValueError."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except RecursionError as error:
        raise ValueError("brackets are nested too deeply") from error


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write one JSON object a line to `path` atomically."""
    write_text(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """Read one JSON object a line. Splits on newlines only: texts may hold U+2028, which str.splitlines would cut."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]


def inside(folder: Path, name: object, source: Path) -> Path:
    """The file `name` below `folder`, where `name` was read from the file `source` and is not trusted.

    Raises ArtifactError for anything but a relative path without "..". Symbolic links are followed: a name cannot make one,
    and the Hugging Face cache consists of them.
    """
    if not isinstance(name, str) or not name or "\0" in name or name.startswith("/") or ".." in name.split("/"):
        raise ArtifactError(
            f"{name!r} is not the name of a file in this folder",
            place=str(source),
            fix="download the folder again, from a source that you trust",
        )
    return folder / name


def file_sha256(path: Path) -> str:
    """The sha256 of a file's bytes, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fingerprint(path: Path) -> str:
    """A fingerprint that changes with the file: its sha256, or for a large one its size and time of change."""
    status = path.stat()
    if status.st_size <= FINGERPRINT_BYTES:
        return file_sha256(path)
    return f"{status.st_size} bytes, changed at {status.st_mtime_ns}"


def folder_bytes(folder: Path) -> int:
    """The size of everything below `folder`."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
