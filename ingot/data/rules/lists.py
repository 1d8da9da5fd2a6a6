"""Lists of words, phrases, hosts or addresses that a user brings: one entry a line, `#` begins a comment, .gz allowed."""

from __future__ import annotations

from pathlib import Path

from ingot.data.read.problem import Unreadable
from ingot.data.read.streams import whole
from ingot.workspace.errors import DataError


def read_list(path: str) -> list[str]:
    """The entries in the order of the file, each once."""
    try:
        with Path(path).open("rb") as file:
            text = whole(file, path).decode("utf-8")
    except OSError as error:
        raise DataError(f"cannot read the list: {error.strerror or error}", place=path) from error
    except Unreadable as error:
        raise DataError(f"cannot read the list: {error}", place=path, fix="repair or shorten it") from error
    except UnicodeDecodeError as error:
        raise DataError("the list is not UTF-8", place=path, fix="convert it, as with iconv -t utf-8") from error
    lines = (line.strip() for line in text.splitlines())
    entries = list(dict.fromkeys(line for line in lines if line and not line.startswith("#")))
    if not entries:
        raise DataError("the list is empty", place=path, fix="one entry a line; lines that begin with # do not count")
    return entries
