"""Errors as messages, also those of the file system."""

from __future__ import annotations

import errno
import re

import typer

from ingot.workspace.errors import ArtifactError, IngotError
from ingot.workspace.output import output_failure

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


def is_full(error: OSError) -> bool:
    """Whether there was no room to write; numpy says so in words, without a number."""
    return error.errno in FULL or (
        error.errno is None and re.search(r"requested and \d+ written", str(error)) is not None
    )


def explain(error: OSError) -> IngotError | None:
    """The message for an error of the file system, with a fix; None if the user cannot fix it."""
    if is_full(error):
        return explain_full(error, error.filename, "free some space there")
    if error.filename is None or error.errno not in REFUSALS:
        return None
    return ArtifactError(error.strerror or str(error), place=str(error.filename), fix=REFUSALS[error.errno])


def explain_full(error: OSError, place: object, fix: str) -> IngotError:
    """The message for a full disk: that of standard output, where it is what cannot be written, else that of `place`."""
    if failure := output_failure():
        fix = "free some space where it goes, or send it elsewhere"
        return ArtifactError(f"it cannot be written: {failure.strerror}", place="standard output", fix=fix)
    return ArtifactError(f"the disk is full: {error}", place=None if place is None else str(place), fix=fix)
