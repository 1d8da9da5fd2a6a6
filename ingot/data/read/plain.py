"""Reads files with one document each: plain text, Markdown, reStructuredText, HTML, source code.

A source may have long texts cut into several documents (`cut_at`): between 0.5 and 1.5 times that size each, cut behind the
last empty line, else the last line end, else the last blank of the first `cut_at` bytes. A text longer than
`max_document_bytes` is always cut, into documents of at most that size. Put together they are the file. No more of it is
held in memory than one of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from ingot.data.read.config import FilesSource, PythonSource, SourceConfig
from ingot.data.read.document import Document, checked, decoded
from ingot.data.read.http import decode_page
from ingot.data.read.problem import ReadProblems, Unreadable
from ingot.data.read.split import FilePiece
from ingot.data.read.streams import chunks, compression_of, opened

CODE_SUFFIXES = (".py", ".pyi")


def file_bytes(piece: FilePiece, source: SourceConfig) -> bytes:
    """The content of a small file; `Unreadable` if it is damaged or longer than the source allows."""
    found, size = [], 0
    with opened(piece.path) as file:
        for chunk in chunks(file, compression_of(piece.path)):
            found.append(chunk)
            size += len(chunk)
            if size > source.max_document_bytes:
                raise Unreadable("too long", f"(more than {source.max_document_bytes:,} bytes)")
    return b"".join(found)


def file_text(piece: FilePiece, source: SourceConfig, problems: ReadProblems) -> str | None:
    """The text of a file, or None if it was dropped."""
    return decoded(file_bytes(piece, source), piece.identity, source, problems)


def read_text(piece: FilePiece, source: SourceConfig, problems: ReadProblems) -> Iterator[Document]:
    """A text file. Python files are code; of others the steps find out."""
    known = {"path": piece.relative}
    if piece.path.lower().endswith(CODE_SUFFIXES):
        known["kind"] = "code"
    if isinstance(source, PythonSource):
        known["source"] = f"{source.name}-text"
    if isinstance(source, FilesSource):
        yield from read_passages(piece, source, known, problems)
        return
    text = file_text(piece, source, problems)
    if text is not None:
        yield Document(piece.identity, text, known)


def read_passages(
    piece: FilePiece, source: FilesSource, known: dict[str, str], problems: ReadProblems
) -> Iterator[Document]:
    """A text file in documents of bounded size; the first has the file's id, the others ID#2, ID#3 …"""
    longest = source.max_document_bytes
    size, most = (
        (max(1, longest * 2 // 3), longest) if source.cut_at is None else (source.cut_at, source.cut_at * 3 // 2)
    )
    number = 0
    with opened(piece.path) as file:
        for number, raw in enumerate(passages(chunks(file, compression_of(piece.path)), size, most), 1):
            identity = piece.identity if number == 1 else f"{piece.identity}#{number}"
            text = decoded(raw, identity, source, problems)
            if text is not None:
                yield Document(identity, text, dict(known))
    if number == 0:
        problems.add(piece.identity, "empty")


def passages(found: Iterator[bytes], size: int, most: int) -> Iterator[bytes]:
    """The bytes of a stream of text in pieces of half to all of `size`; the last may be shorter, or have up to `most`."""
    waiting = b""
    for chunk in found:
        waiting += chunk
        start = 0
        while len(waiting) - start > most:
            end = _cut(waiting, start, size)
            yield waiting[start:end]
            start = end
        waiting = waiting[start:]
    if waiting:
        yield waiting


def _cut(text: bytes, start: int, size: int) -> int:
    """Where a piece of about `size` bytes from `start` ends."""
    earliest, latest = start + size // 2, start + size
    for border in (b"\n\n", b"\r\n\r\n", b"\n", b" "):
        found = text.rfind(border, earliest, latest)
        if found >= 0:
            return found + len(border)
    inside = (at for at in range(latest, max(start, latest - 4), -1) if _may_cut(text, at))
    return next(inside, latest)  # else it is no UTF-8


def _may_cut(text: bytes, at: int) -> bool:
    """Whether a character begins there, and no line end is torn into two."""
    return text[at] & 0xC0 != 0x80 and text[at - 1 : at + 1] != b"\r\n"


def read_html(piece: FilePiece, source: SourceConfig, problems: ReadProblems) -> Iterator[Document]:
    """An HTML file as it stands: the step `extract_html` takes the text out."""
    page = decode_page(file_bytes(piece, source), "")
    if page.damaged:
        problems.add(piece.identity, "not " + page.charset, "replaced", size=piece.size, kept=True)
    text = checked(page.text, piece.identity, source, problems)
    if text is not None:
        yield Document(piece.identity, text, {"path": piece.relative, "mime": "text/html"})


def read_code(piece: FilePiece, source: SourceConfig, problems: ReadProblems) -> Iterator[Document]:
    """A file of a source tree."""
    yield from code_document(file_bytes(piece, source), piece.identity, piece.relative, source, problems)


def code_document(
    raw: bytes, identity: str, path: str, source: SourceConfig, problems: ReadProblems
) -> Iterator[Document]:
    """A file of a source tree, if it is no binary one (git's rule: a NUL among the first 8,000 bytes)."""
    if b"\0" in raw[:8000]:
        problems.add(identity, "binary", size=len(raw))
        return
    text = decoded(raw, identity, source, problems)
    if text is not None:
        yield Document(identity, text, {"path": path})
