"""A full disk under torch's files, as the error of the disk that it is.

When the disk is full torch.save closes its archive nevertheless, and that raises an error of its own: `RuntimeError: unexpected
pos 704 vs 598`. That of the disk is only its context, which does not survive the way to another process.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch


@contextmanager
def disk_errors(place: Path) -> Iterator[None]:
    """In the block, where torch writes to files that we have opened, the disk's error comes out; it names `place`."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, OSError):
            cause = cause.__cause__ or cause.__context__
        if cause is None or cause.errno is None:
            raise
        raise OSError(cause.errno, cause.strerror, str(cause.filename or place)) from error


def save_tensors(path: Path, value: Any) -> None:
    """`torch.save` to a path; given the path itself, torch's error has no trace of that of the disk."""
    with disk_errors(path), path.open("wb") as file:
        torch.save(value, file)
