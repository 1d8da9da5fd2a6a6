"""The commands that install missing packages, as messages name them.

Ingot is on no package index, and whatever an index has under its name is somebody else's: an extra is installed from the clone.
Packages go to the Python that runs; those of an extra come in the versions of constraints.txt.
"""

from __future__ import annotations

import importlib.util
import shlex
import sys
from pathlib import Path

from ingot.workspace.errors import IngotError

CLONE = Path(__file__).parents[2]
UNPINNED = ("inspect",)  # it wants other versions than constraints.txt pins


def check_installed(packages: tuple[str, ...], extra: str, place: str) -> None:
    """Refuse to go on without packages that an extra brings, before anything slow begins."""
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    if missing:
        raise IngotError(f"{missing[0]} is not installed", place=place, fix=install_extra(extra))


def pip_install(*packages: str) -> str:
    """The command that installs packages of the index."""
    return shlex.join([*_pip(), *packages])


def install_extra(extra: str) -> str:
    """The command that installs Ingot's requirements for something, as pyproject.toml groups them; empty: the basic ones."""
    group = f"[{extra}]" if extra else ""
    if not (CLONE / "pyproject.toml").is_file():  # not installed with -e: nothing here says where the clone is
        return f"{shlex.join([*_pip(), f'FOLDER{group}'])}, where FOLDER is a clone of Ingot's repository"
    pinned = [] if extra in UNPINNED else ["-c", str(_from_here(CLONE / "constraints.txt"))]
    return shlex.join([*_pip(), *pinned, "-e", f"{_from_here(CLONE)}{group}"])


def program(name: str) -> str:
    """A program that a package has brought: it lies beside the Python that runs."""
    return shlex.quote(str(_from_here(Path(sys.executable).with_name(name))))


def _pip() -> list[str]:
    return [str(_from_here(Path(sys.executable))), "-m", "pip", "install"]


def _from_here(path: Path) -> Path:
    """A path as a person in this folder would type it."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path
