"""Splits: what one task reads.

A split holds pieces: a byte range of a large file, some row groups of a Parquet file, or many small files whole.
A reader of a byte range begins at the first record that *starts* in it and ends after the last one that does, so that
the ranges of a file give together exactly the records of the file.

Invariant: `key` names the content (fingerprints of the files, names, ranges): the same key, the same documents.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ingot.workspace.outside import is_outside, outside_sha256, without_paths


@dataclass(frozen=True, slots=True)
class FilePiece:
    """A file or a part of one. `start` and `end` count bytes, row groups in Parquet; `end` -1 is the end of the file."""

    path: str
    identity: str  # NAME:RELATIVE/PATH: what ids made here begin with, the same on every machine
    format: str  # one of READERS (read.py), or file.py:read
    size: int  # bytes of text to expect: an estimate for compressed files
    start: int = 0
    end: int = -1
    limit: int | None = None  # stop after this many bytes of text: the source's budget ends here
    docstrings: bool = False  # of a Python file of the installed distribution: give its docstrings as prose
    whole: bool = False  # of such a file: give it as code

    @property
    def relative(self) -> str:
        """The path below the source's folder."""
        return self.identity.split(":", 1)[1]

    def content(self, fingerprint: str) -> list[Any]:
        """Everything that decides which documents the piece gives, but for the path."""
        own = [outside_sha256(self.format)] if is_outside(self.format) else []
        form = without_paths(self.format)
        return [fingerprint, self.identity, form, *own, self.start, self.end, self.limit, self.docstrings, self.whole]


@dataclass(frozen=True, slots=True)
class Split:
    """What one task reads. Small and picklable."""

    key: str
    pieces: tuple[FilePiece, ...]
    bytes: int  # of text to expect
