"""Which files are read: find them, give each a stable name, and take as many as the budget allows.

The order is that of the hash of a file's relative path, so that it does not depend on the machine, the file system or
the time of day, and any budget takes a fair cut. A larger budget takes the same files and more. Files that are prose by
type (README, LICENSE, *.md, METADATA …) come before Python files: at small scale they are worth more.
"""

from __future__ import annotations

import os
import platform
import sysconfig
from dataclasses import dataclass
from glob import has_magic
from hashlib import blake2b
from importlib.metadata import distributions
from pathlib import Path
from typing import Literal

from ingot.data.config import FilesSource, PythonSource
from ingot.workspace.errors import DataError

Role = Literal["text", "metadata", "python", "rows"]

TEXT_SUFFIXES = (".md", ".rst", ".txt")
TEXT_NAMES = ("README", "LICENSE", "LICENCE", "COPYING", "NOTICE", "CHANGELOG", "AUTHORS", "CONTRIBUTING")
METADATA_NAMES = ("METADATA", "PKG-INFO")
PYTHON_SUFFIXES = (".py", ".pyi")
ROWS_SUFFIXES = (".jsonl", ".jsonl.gz", ".parquet")
NOT_WALKED = ("__pycache__", "site-packages", "dist-packages")
OURSELVES = "ingot"  # the evals are in there: the program must not train on itself


@dataclass(frozen=True, slots=True)
class RawFile:
    """A file that may be read. `id` is its name on every machine, `docstrings` and `code` what a Python file gives."""

    path: str
    id: str
    size: int
    role: Role
    source: str
    docstrings: bool = False
    code: bool = False


def find_files(source: PythonSource | FilesSource) -> list[RawFile]:
    """Every file of a source that has a name we read, in no particular order."""
    return installed_files(source) if isinstance(source, PythonSource) else pattern_files(source)


def select(files: list[RawFile], budget: int) -> list[RawFile]:
    """The files to read: by hash of the path, until their sizes reach `budget`."""
    taken = []
    for file in sorted(files, key=lambda file: (file.role in ("python", "rows"), path_hash(file.id)[:8], file.id)):
        if budget <= 0:
            break
        taken.append(file)
        budget -= file.size
    return taken


def path_hash(identity: str) -> bytes:
    """16 bytes: the first half orders files for the budget, the second half picks those that become code."""
    return blake2b(identity.encode(), digest_size=16).digest()


def printable(name: str) -> str:
    """A file name that can be stored: bytes that are no UTF-8 are written as escapes."""
    return name.encode("utf-8", "backslashreplace").decode()


def installed_files(source: PythonSource) -> list[RawFile]:
    """Files of the standard library and of the installed packages of the running interpreter."""
    roots: dict[str, str] = {"stdlib": sysconfig.get_path("stdlib")}
    for label, key in (("site-packages", "purelib"), ("platlib", "platlib")):
        if sysconfig.get_path(key) not in roots.values():  # purelib and platlib are one folder on most systems
            roots[label] = sysconfig.get_path(key)
    files = []
    for label, root in roots.items():
        for folder, names, file_names in os.walk(root):
            relative = folder[len(root) :].replace(os.sep, "/")
            names[:] = [name for name in names if name not in NOT_WALKED]
            if not relative:
                names[:] = [name for name in names if name != OURSELVES and not name.startswith(OURSELVES + "-")]
            for name in file_names:
                role = role_of(name)
                if role is not None and role != "rows":
                    identity = printable(f"{source.name}:{label}{relative}/{name}")
                    files.append(_installed_file(source, f"{folder}{os.sep}{name}", identity, role))
    return files


def installed_versions() -> dict[str, str]:
    """The version of Python and of every installed package but our own: what `installed_files` depends on."""
    packages = {found.name: found.version for found in distributions() if found.name != OURSELVES}
    return {"python": platform.python_version(), **packages}


def _installed_file(source: PythonSource, path: str, identity: str, role: Role) -> RawFile:
    becomes_code = int.from_bytes(path_hash(identity)[8:]) < source.code_share * 2**64
    is_python = role == "python"
    return RawFile(path, identity, file_size(path), role, source.name, is_python, is_python and becomes_code)


def pattern_files(source: FilesSource) -> list[RawFile]:
    """Files of the user's patterns."""
    patterns = [source.files] if isinstance(source.files, str) else source.files
    files: dict[str, RawFile] = {}
    for pattern in patterns:
        paths = matching_files(pattern, place=f"sources: {source.name}")
        base, _ = fixed_part(pattern)
        base = base if base.is_dir() else base.parent
        for path in paths:
            role = role_of(path.name)
            if role is not None:
                identity = printable(f"{source.name}:{path.relative_to(base).as_posix()}")
                files[str(path)] = RawFile(
                    str(path), identity, file_size(str(path)), role, source.name, code=role == "python"
                )
    if not files:
        raise DataError(
            f"no file that can be read among those that match {', '.join(patterns)}",
            place=f"sources: {source.name}",
            fix=f"give files that end in {', '.join((*ROWS_SUFFIXES, *TEXT_SUFFIXES, *PYTHON_SUFFIXES))}",
        )
    if len({file.id for file in files.values()}) < len(files):
        raise DataError(
            "two patterns find different files with the same relative path",
            place=f"sources: {source.name}",
            fix="make them two sources with names of their own",
        )
    return list(files.values())


def matching_files(pattern: str, place: str) -> list[Path]:
    """The files that match a path or glob, sorted; none is an error. A folder means everything below it."""
    base, rest = fixed_part(pattern)
    if base.is_dir():
        paths = sorted(path for path in base.glob(rest or "**/*") if path.is_file())
    else:
        paths = [base] if base.is_file() and not rest else []
    if not paths:
        raise DataError(
            f"nothing matches {pattern}", place=place, fix="check the path; it is relative to the working directory"
        )
    return paths


def fixed_part(pattern: str) -> tuple[Path, str]:
    """A pattern cut before its first wildcard: (data, "*.txt") for "data/*.txt", (a.txt, "") for a plain path."""
    parts = Path(pattern).expanduser().parts
    fixed = 0
    while fixed < len(parts) and not has_magic(parts[fixed]):
        fixed += 1
    return Path(*parts[:fixed]), "/".join(parts[fixed:])


def role_of(name: str) -> Role | None:
    """How a file is read, by its name; None if it is not."""
    lower = name.lower()
    if lower.endswith(PYTHON_SUFFIXES):
        return "python"
    if lower.endswith(ROWS_SUFFIXES):
        return "rows"
    if name in METADATA_NAMES:
        return "metadata"
    if lower.endswith(TEXT_SUFFIXES):
        return "text"
    # LICENSE, LICENSE-APACHE, README, COPYING.LESSER: a known first word and no suffix of another format
    stem, _, suffix = name.partition(".")
    if stem.upper().startswith(TEXT_NAMES) and (not suffix or suffix.isupper()):
        return "text"
    return None


def file_size(path: str) -> int:
    """Size in bytes; 0 for a dangling link, which is named when it is read."""
    try:
        return Path(path).stat().st_size
    except OSError:
        return 0
