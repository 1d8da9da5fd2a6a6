"""Errors as messages, also those of the file system."""

from __future__ import annotations

import errno

import typer

from ingot.workspace.errors import ArtifactError, IngotError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # of a disk, of one's share of it, of what one file may take
_FORBIDDEN = "check its permissions, or give another folder"
REFUSALS = {
    errno.EACCES: _FORBIDDEN,
    errno.EPERM: _FORBIDDEN,
    errno.EROFS: _FORBIDDEN,
    errno.ENOTDIR: "a part of this path is a file where a folder is needed: give another path",
    errno.EEXIST: "there is a file where a folder is needed: give another path",
    errno.EISDIR: "there is a folder where a file is needed: give another path",
    errno.ENAMETOOLONG: "give a shorter path",
}


def show_problem(error: IngotError) -> None:
    typer.echo(f"error: {error}", err=True)


def explain(error: OSError) -> IngotError | None:
    """The message for an error of the file system, with a fix; None if the user cannot fix it."""
    if error.filename is None or error.errno is None:
        return None
    fix = "free some space there" if error.errno in FULL else REFUSALS.get(error.errno)
    return None if fix is None else ArtifactError(error.strerror or str(error), place=str(error.filename), fix=fix)
