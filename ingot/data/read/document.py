"""Turns what readers find into tables of documents: checked texts, one schema for every source.

Texts come out as UTF-8 without NUL characters, with "\\n" as the only line end, and with something in them. What cannot
be brought to that is counted (problem.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow
import pyarrow.compute as compute

from ingot.data.read.config import BASE_COLUMNS, ColumnType, SourceConfig
from ingot.data.read.problem import ReadProblems, Unreadable

BATCH_BYTES = 8_000_000
BATCH_ROWS = 20_000
PYTHON_TYPES: dict[ColumnType, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (float, int),
    "boolean": (bool,),
}


@dataclass(slots=True)
class Document:
    """One text and what the reader knows about it (`kind`, `url`, … by column)."""

    id: str
    text: str
    fields: dict[str, Any] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """Size of the text in UTF-8; ASCII, the usual case, is counted without encoding."""
        return len(self.text) if self.text.isascii() else len(self.text.encode("utf-8"))


def schema_of(source: SourceConfig) -> pyarrow.Schema:
    """The columns of the documents of a source."""
    types = {
        "string": pyarrow.string(),
        "integer": pyarrow.int64(),
        "number": pyarrow.float64(),
        "boolean": pyarrow.bool_(),
    }
    base = [(name, pyarrow.large_string() if name == "text" else pyarrow.string()) for name in BASE_COLUMNS]
    return pyarrow.schema([*base, *((name, types[kind]) for name, kind in source.columns().items())])


def decoded(raw: bytes, place: str, source: SourceConfig, problems: ReadProblems) -> str | None:
    """The UTF-8 text of `raw`, repaired or dropped by the source's policy. A byte order mark is taken off."""
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        kept = source.bad_text == "repair"
        problems.add(place, "not UTF-8", f"at byte {error.start}", size=len(raw), shown=raw, kept=kept)
        if not kept:
            return None
        text = raw.decode("utf-8-sig", "replace")
    return checked(text, place, source, problems)


def checked(text: str, place: str, source: SourceConfig, problems: ReadProblems) -> str | None:
    """The text as it may go on, or None if it was dropped."""
    try:
        if len(text) > source.max_document_bytes:
            raise Unreadable("too long", f"({len(text):,} characters > {source.max_document_bytes:,})")
        if "\r" in text:
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        repairs = []
        if "\0" in text:
            repairs.append(("NUL", f"at character {text.index(chr(0))}"))
            text = text.replace("\0", "")
        if not text.isascii():
            try:
                text.encode("utf-8")
            except UnicodeEncodeError as error:
                repairs.append(("lone surrogate", f"at character {error.start}"))
                text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        for rule, detail in repairs:
            if source.bad_text == "drop":
                raise Unreadable(rule, detail)
            problems.add(place, rule, detail, size=len(text), shown=text, kept=True)
        if not text or text.isspace():
            raise Unreadable("empty")
    except Unreadable as error:
        problems.add(place, error.rule, error.detail, size=len(text), shown=text)
        return None
    return text


def tables(found: Iterator[Document | pyarrow.Table], source: SourceConfig) -> Iterator[pyarrow.Table]:
    """Documents as tables of bounded size, in order; tables among them pass."""
    schema = schema_of(source)
    waiting: list[Document] = []
    size = 0
    for item in found:
        if isinstance(item, Document):
            waiting.append(item)
            size += len(item.text)
        full = size >= BATCH_BYTES or len(waiting) >= BATCH_ROWS
        if waiting and (full or not isinstance(item, Document)):
            yield as_table(waiting, source, schema)
            waiting, size = [], 0
        if not isinstance(item, Document):
            yield item
    if waiting:
        yield as_table(waiting, source, schema)


def cut(table: pyarrow.Table, left: int) -> tuple[pyarrow.Table, int]:
    """The first rows of a table, until their texts reach `left` bytes; and what is left then."""
    sizes = compute.binary_length(table.column("text")).to_numpy().cumsum()
    rows = int((sizes < left).sum()) + 1
    taken = table.slice(0, rows)
    return taken, left - int(sizes[len(taken) - 1])


def as_table(documents: list[Document], source: SourceConfig, schema: pyarrow.Schema) -> pyarrow.Table:
    """One table. A value of another type than the column's is null."""
    kinds = source.columns()
    columns: list[Any] = []
    for name in schema.names:
        if name == "id":
            values: list[Any] = [storable(document.id) for document in documents]
        elif name == "text":
            values = [document.text for document in documents]
        elif name == "source":
            values = [document.fields.get(name) or source.name for document in documents]
        else:
            wanted = PYTHON_TYPES[kinds.get(name, "string")]
            values = [storable(document.fields.get(name)) for document in documents]
            values = [value if type(value) in wanted else None for value in values]
        columns.append(pyarrow.array(values, schema.field(name).type))
    return pyarrow.table(columns, schema=schema)


def storable(value: Any) -> Any:
    """The value; in a string, characters that UTF-8 cannot hold are written as escapes."""
    if isinstance(value, str) and not value.isascii():
        return value.encode("utf-8", "backslashreplace").decode()
    return value
