"""Errors that a person can act on: what was wrong, where, and what to do.

Every error that Ingot raises on purpose is an `IngotError`. The command line prints its message without a traceback;
anything else is a bug and keeps its traceback.
"""

from __future__ import annotations

from collections.abc import Sequence


class IngotError(Exception):
    """Something the user can put right. `place` says where it is, `fix` says what to do."""

    def __init__(self, problem: str, *, place: str | None = None, fix: str | None = None) -> None:
        self.problem, self.place, self.fix = problem, place, fix
        lines = [f"{place}: {problem}" if place else problem]
        if fix:
            lines.append(f"  fix: {fix}")
        super().__init__("\n".join(lines))


class RecipeError(IngotError):
    """A recipe that cannot be run as written: found before anything runs."""


class ArtifactError(IngotError):
    """An artifact on disk is missing, damaged, or of another kind than was asked for."""


class DataError(IngotError):
    """Input data that cannot be used: the file and the row are named."""


class RunLocked(IngotError):
    """Another process works in this run folder."""


class CheckFailed(IngotError):
    """A run-time check says that the run is not doing what it claims to do."""


class Interrupted(Exception):
    """The user asked to stop (Ctrl-C or SIGTERM); the same work, called again, goes on from what is saved. Not an error."""


def listed(names: Sequence[str], most: int = 10, separator: str = ", ") -> str:
    """The first `most` names for a message, and how many more there are."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return separator.join(names[:most]) + more


def cannot_import(name: str, error: ImportError, module: str) -> str:
    """What to say of a package that cannot be imported: it is not installed, or something in it fails, and what that was."""
    absent = isinstance(error, ModuleNotFoundError) and (error.name or "").split(".")[0] == module
    return f"{name} is not installed" if absent else f"{name} cannot be imported: {error}"
