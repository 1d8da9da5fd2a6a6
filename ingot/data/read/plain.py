"""Reads files with one document each: plain text, Markdown, reStructuredText, HTML, source code."""

from __future__ import annotations

from collections.abc import Iterator

from ingot.data.read.config import PythonSource, SourceConfig
from ingot.data.read.document import Document, checked, decoded
from ingot.data.read.http import decode_page
from ingot.data.read.problem import Problems, Unreadable
from ingot.data.read.split import Piece
from ingot.data.read.streams import chunks, compression_of, opened

CODE_SUFFIXES = (".py", ".pyi")


def file_bytes(piece: Piece, source: SourceConfig) -> bytes:
    """The content of a small file; `Unreadable` if it is damaged or longer than the source allows."""
    found, size = [], 0
    with opened(piece.path) as file:
        for chunk in chunks(file, compression_of(piece.path)):
            found.append(chunk)
            size += len(chunk)
            if size > source.max_document_bytes:
                raise Unreadable("too long", f"(more than {source.max_document_bytes:,} bytes)")
    return b"".join(found)


def file_text(piece: Piece, source: SourceConfig, problems: Problems) -> str | None:
    """The text of a file, or None if it was dropped."""
    return decoded(file_bytes(piece, source), piece.identity, source, problems)


def read_text(piece: Piece, source: SourceConfig, problems: Problems) -> Iterator[Document]:
    """A text file. Python files are code; of others the steps find out."""
    text = file_text(piece, source, problems)
    if text is None:
        return
    known = {"path": piece.relative}
    if piece.path.lower().endswith(CODE_SUFFIXES):
        known["kind"] = "code"
    if isinstance(source, PythonSource):
        known["source"] = f"{source.name}-text"
    yield Document(piece.identity, text, known)


def read_html(piece: Piece, source: SourceConfig, problems: Problems) -> Iterator[Document]:
    """An HTML file as it stands: the step `extract_html` takes the text out."""
    page = decode_page(file_bytes(piece, source), "")
    if page.damaged:
        problems.add(piece.identity, "not " + page.charset, "replaced", size=piece.size, kept=True)
    text = checked(page.text, piece.identity, source, problems)
    if text is not None:
        yield Document(piece.identity, text, {"path": piece.relative, "mime": "text/html"})


def read_code(piece: Piece, source: SourceConfig, problems: Problems) -> Iterator[Document]:
    """A file of a source tree."""
    yield from code_document(file_bytes(piece, source), piece.identity, piece.relative, source, problems)


def code_document(raw: bytes, identity: str, path: str, source: SourceConfig, problems: Problems) -> Iterator[Document]:
    """A file of a source tree, if it is no binary one (git's rule: a NUL among the first 8,000 bytes)."""
    if b"\0" in raw[:8000]:
        problems.add(identity, "binary", size=len(raw))
        return
    text = decoded(raw, identity, source, problems)
    if text is not None:
        yield Document(identity, text, {"path": path})
