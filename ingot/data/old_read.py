"""Files to documents. Whatever cannot be read is named with its reason and counted; it never stops the stage.

    *.py, *.pyi            its docstrings as pages of prose (id PATH#docstrings-PAGE), and the file itself as code
    METADATA, PKG-INFO     the package's long description
    *.md *.rst *.txt …     the file
    *.jsonl(.gz) *.parquet one document a row (id PATH:ROW, counted from 1)

Texts are UTF-8 without NUL bytes; line ends become "\\n".
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ingot.data.docstrings import NotParsable, docstring_pages, long_description
from ingot.data.document import Document, utf8_size
from ingot.data.sources import RawFile
from ingot.workspace.errors import DataError


@dataclass(frozen=True, slots=True)
class Problem:
    """A file or row that was not read, wholly or in part, and why."""

    id: str
    source: str
    rule: str
    detail: str
    bytes: int
    text: str = ""


@dataclass(slots=True)
class Reading:
    """What came out of one file."""

    documents: list[Document] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


class Unreadable(Exception):
    """A text that cannot be used: the rule it breaks and the numbers."""

    def __init__(self, rule: str, detail: str = "") -> None:
        super().__init__(f"{rule} {detail}")
        self.rule, self.detail = rule, detail


def read_files(files: list[RawFile]) -> list[Reading]:
    """Read text, metadata and Python files (not rows): one reading for each."""
    return [read_file(file) for file in files]


def read_file(file: RawFile) -> Reading:
    """The documents of one text, metadata or Python file."""
    reading = Reading()
    raw = b""
    try:
        raw = read_bytes(file.path)
        text = decode(raw)
        if file.role == "text":
            reading.documents.append(Document(file.id, text, f"{file.source}-text"))
        elif file.role == "metadata":
            description = long_description(text)
            if not description:
                raise Unreadable("no description", "in the package's metadata")
            reading.documents.append(Document(file.id, description, f"{file.source}-metadata"))
        else:
            if file.code:
                reading.documents.append(Document(file.id, text, f"{file.source}-code", "code"))
            if file.docstrings:
                for number, page in enumerate(docstring_pages(text), start=1):
                    identity = f"{file.id}#docstrings-{number}"  # checked: escapes can put anything into a docstring
                    reading.documents.append(Document(identity, checked(page), f"{file.source}-docstrings", "prose"))
    except Unreadable as error:
        reading.problems.append(problem(file, error.rule, error.detail, raw))
    except NotParsable as error:
        reading.problems.append(problem(file, "not parsable as Python", f"({error})", raw))
    return reading


def problem(file: RawFile, rule: str, detail: str, raw: bytes) -> Problem:
    """A problem with the start of the file, as far as it can be shown."""
    shown = raw[:2000].decode("utf-8", "replace").replace("\0", "\ufffd")
    return Problem(file.id, file.source, rule, detail, file.size, shown)


def read_bytes(path: str) -> bytes:
    """The content of a file; a missing, locked or broken one is `Unreadable`."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise Unreadable("cannot be opened", f"({error.strerror or type(error).__name__})") from None


def decode(raw: bytes) -> str:
    """Text of a file, or `Unreadable` with the place of the first bad byte."""
    nul = raw.find(b"\0")
    if nul >= 0:
        raise Unreadable("NUL byte", f"at offset {nul}")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Unreadable("not UTF-8", f"at offset {error.start}") from None
    return checked(text)


def checked(text: str) -> str:
    """The text with plain line ends, or `Unreadable` if it is empty or cannot be stored as UTF-8."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if not text or text.isspace():
        raise Unreadable("empty")
    if "\0" in text:
        raise Unreadable("NUL byte", f"at character {text.index(chr(0))}")
    try:
        utf8_size(text)
    except UnicodeEncodeError as error:
        raise Unreadable("lone surrogate", f"at character {error.start}") from None
    return text


def read_rows(file: RawFile, column: str, budget: int) -> Reading:
    """The documents of a jsonl or parquet file from its start, until their texts reach `budget` bytes."""
    reading = Reading()
    missing = 0
    try:
        for number, row in rows(file.path):
            identity = f"{file.id}:{number}"
            if budget <= 0:
                reading.problems.append(Problem(identity, file.source, "budget", "used up: rows from here left out", 0))
                break
            try:
                if isinstance(row, Unreadable):
                    raise row
                value = row.get(column)
                if not isinstance(value, str):
                    missing += 1
                    raise Unreadable("no text", f"in column {column!r}")
                text = checked(value)
            except Unreadable as error:
                shown = str(row)[:2000].encode("utf-8", "replace").decode().replace("\0", "\ufffd")
                reading.problems.append(Problem(identity, file.source, error.rule, error.detail, len(shown), shown))
                continue
            budget -= utf8_size(text)
            reading.documents.append(Document(identity, text, file.source))
    except Unreadable as error:
        reading.problems.append(Problem(file.id, file.source, error.rule, error.detail, file.size))
    if missing and not reading.documents:
        raise DataError(
            f"no row has text in the column {column!r}",
            place=file.path,
            fix="name the column that holds the document: {files: …, text: COLUMN}",
        )
    return reading


Row = tuple[int, "dict[str, object] | Unreadable"]


def rows(path: str) -> Iterator[Row]:
    """Numbered rows of a jsonl(.gz) or parquet file. Damage ends the file as `Unreadable`, after its good rows."""
    return parquet_rows(path) if path.lower().endswith(".parquet") else jsonl_rows(path)


def jsonl_rows(path: str) -> Iterator[Row]:
    """One JSON object a line; a line that is none is yielded as `Unreadable`. Lines end in "\\n" only."""
    number = 0
    try:
        with gzip.open(path, "rb") if path.lower().endswith(".gz") else Path(path).open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if not line.strip():
                    continue
                try:
                    row = json.loads(line)
                except (ValueError, RecursionError) as error:  # bad JSON and bad UTF-8 are both ValueErrors
                    yield number, Unreadable("not JSON", f"({str(error)[:120]})")
                    continue
                yield number, row if isinstance(row, dict) else Unreadable("not a JSON object", f"({str(row)[:60]})")
    except (EOFError, zlib.error) as error:
        raise Unreadable("damaged", f"after row {number} ({error})") from None
    except OSError as error:  # gzip.BadGzipFile is one too
        raise Unreadable("cannot be read", f"after row {number} ({error.strerror or error})") from None


def parquet_rows(path: str) -> Iterator[Row]:
    """Rows of a parquet file as dictionaries."""
    import pyarrow
    import pyarrow.parquet

    number = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=1024):
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise Unreadable("damaged", f"after row {number} ({str(error)[:160]})") from None
