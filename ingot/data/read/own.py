"""Reads files of a format of the user's own, by a function that a source names: `format: stanzas.py:read`.

    def read(file, path):                       # a binary stream, decompressed, and the file's path or URL
        for stanza in file.read().decode().split("\\n\\n"):
            yield {"text": stanza}              # a row: the column of the text, `id`, and whatever the source keeps

What a row misses is reported as of any row. What the function raises because the file is damaged (OF_DATA, or `Unreadable` with
a rule of its own) costs what is left of that file and is counted; anything else is a mistake in the function, and ends the stage.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import BinaryIO, cast

from ingot.data.read.config import OWN_FORMAT, RowsSource
from ingot.data.read.document import Document
from ingot.data.read.jsonl import row_document
from ingot.data.read.problem import ReadProblems, Unreadable
from ingot.data.read.split import FilePiece
from ingot.data.read.streams import chunks, compression_of, opened
from ingot.workspace.errors import DataError
from ingot.workspace.outside import raised_at

OF_DATA = (ValueError, LookupError, ArithmeticError, SyntaxError, RecursionError, EOFError)


class _Stream(io.RawIOBase):
    """Chunks of bytes as a file that is read once, from its beginning."""

    def __init__(self, parts: Iterator[bytes]) -> None:
        self.parts, self.held = parts, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        while not self.held:
            part = next(self.parts, None)
            if part is None:
                return 0
            self.held = memoryview(part)
        size = min(len(buffer), len(self.held))
        buffer[:size] = self.held[:size]
        self.held = self.held[size:]
        return size


def read_own(piece: FilePiece, source: RowsSource, problems: ReadProblems) -> Iterator[Document]:
    """The documents of a file, row by row; ids made here are NAME:PATH:ROW, counted from 0."""
    spec = piece.format
    read = OWN_FORMAT.find(spec)
    with opened(piece.path) as file:
        stream = cast("BinaryIO", io.BufferedReader(_Stream(chunks(file, compression_of(piece.path)))))
        number = 0
        try:
            for row in read(stream, piece.path):
                place = f"{piece.identity}:{number}"
                number += 1
                if not isinstance(row, dict):
                    problems.add(place, "not a row", f"({type(row).__name__}, where a dict is wanted)", shown=str(row))
                    continue
                document = row_document(row, place, source, problems)
                if document is not None:
                    yield document
        except Unreadable as error:
            problems.add(f"{piece.identity}:{number}", error.rule, error.detail, size=piece.size)
        except OF_DATA as error:
            problems.add(f"{piece.identity}:{number}", "damaged", _described(error, spec), size=piece.size)
        except (DataError, GeneratorExit):
            raise
        except Exception as error:
            fix = "mend the function; for a file that it cannot read it may raise ValueError, which is counted"
            raise DataError(f"{_described(error, spec)}, at {piece.identity}", place=spec, fix=fix) from error


def _described(error: Exception, spec: str) -> str:
    return f"{type(error).__name__}: {error} ({raised_at(error, spec)})"
