"""Caches compiled kernels on disk: a machine compiles each of them once, and again only when it has changed.

    $XDG_CACHE_HOME/ingot/kernels/MODULE-DIGEST/        the kernels of one file

numba compiles a kernel again when its own file changes, but not when a helper or a constant in another file does. The digest is
therefore that of the file and of all of the package that it imports, directly or through others. An edit begins a new
folder for the files that depend on it and leaves the others alone. A process that still runs the old code finds its own folder.
Where the source lies does not count: another checkout or virtual environment with the same files finds them compiled.

Only imports at the beginning of a line count: one inside of a function binds nothing that a kernel could see.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import UserProvidedCacheLocator

PACKAGE = (Path(__file__).parents[1],)  # folders with its modules
USERS = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
HOME = Path(numba.config.CACHE_DIR or USERS / "ingot" / "kernels")  # the first is NUMBA_CACHE_DIR
IMPORT = re.compile(rb"^from (ingot[\w.]*) import (\([^)]*\)|.*)|^import (ingot[\w.]*)", re.MULTILINE)
NAME = re.compile(r"\w+")
with_kernels: set[Path] = set()  # the files of the functions that `cached` has seen
LOCATORS = f"{__name__}.ByContent,UserWideCacheLocator"  # the second where the folder cannot be written
_one_at_a_time = threading.Lock()  # numba's setting is shared by all threads


class ByContent(UserProvidedCacheLocator):  # type: ignore[misc]  # its base has no types here
    """Lets numba use the folder itself, whose name says the content; it would add one for the path of the source."""

    @classmethod
    def get_suitable_cache_subpath(cls, _: str) -> str:
        return ""


@contextmanager
def cached(function: Callable[..., Any]) -> Iterator[None]:
    """In the block numba caches what it makes of `function` in the folder of its file.

    Where that cannot be written, numba chooses another folder itself.
    """
    file = Path(function.__code__.co_filename)
    with _one_at_a_time:
        usual = numba.config.CACHE_DIR, numba.config.CACHE_LOCATOR_CLASSES
        if file.is_file():
            numba.config.CACHE_DIR, numba.config.CACHE_LOCATOR_CLASSES = str(folder(file)), LOCATORS
            with_kernels.add(file)
        try:
            yield
        finally:
            numba.config.CACHE_DIR, numba.config.CACHE_LOCATOR_CLASSES = usual


def is_cold(file: Path) -> bool:
    """Whether kernels of this file (of what it imports, if it has none of its own) were never compiled on this machine."""
    files = {file} & with_kernels or reachable(file) & with_kernels
    return bool(files) and not any(next(folder(each).rglob("*.nbi"), None) for each in files)


@cache
def folder(file: Path) -> Path:
    """The folder of this file's kernels, by its content and that of all it imports."""
    digest = hashlib.sha256()
    for each in sorted(reachable(file)):
        digest.update(read(each)[0])
    return HOME / f"{file.stem}-{digest.hexdigest()[:16]}"


def reachable(file: Path) -> set[Path]:
    """The file and all files of the package that it imports, directly or through others."""
    found: set[Path] = set()
    waiting = [file]
    while waiting:
        each = waiting.pop()
        if each not in found:
            found.add(each)
            waiting += read(each)[1]
    return found


@cache
def read(file: Path) -> tuple[bytes, tuple[Path, ...]]:
    """The digest of one file, and the files of the package that it imports itself."""
    content, files = file.read_bytes(), list[Path]()
    for module, names, plain in IMPORT.findall(content):
        parent = (module or plain).decode()
        below = [f"{parent}.{name}" for name in NAME.findall(names.decode())]
        files += [path for each in (parent, *below) if (path := _file(each)) is not None]
    return hashlib.sha256(content).digest(), tuple(files)


def _file(module: str) -> Path | None:
    """The file of a module; None for a package, and for a name that is no module."""
    inside = module.split(".")[1:]
    candidates = (Path(base, *inside).with_suffix(".py") for base in PACKAGE if inside)
    return next((path for path in candidates if path.is_file()), None)
