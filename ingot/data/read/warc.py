"""WARC, WET and WAT files (ISO 28500): records, whatever the compression, however damaged.

    plain        WARC/1.0 CRLF headers CRLF CRLF content CRLF CRLF, again and again
    compressed   a gzip member or zstd frame a record (or several records in one)

After damage (a broken member, a header that is none, a wrong length) reading goes on at the next place where a record
begins; so it does at the start of a byte range. In a compressed file a record begins at a member whose text begins with
`WARC/`, in a plain one at a line `WARC/1.x` followed by a `WARC-…` or `Content-…` header.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from ingot.data.read.problem import Problems, Unreadable
from ingot.data.read.split import Piece
from ingot.data.read.streams import CHUNK, Decompressor, damage_of, members, opened, read

MAGIC = {".gz": b"\x1f\x8b\x08", ".zst": b"\x28\xb5\x2f\xfd"}
PLAIN_RECORD = re.compile(rb"(?:\A|(?<=\n))WARC/\d\.\d\r?\n(?=(?:WARC|Content)-)", re.IGNORECASE)
MAX_HEADER = 65_536


@dataclass(slots=True)
class WarcRecord:
    """One record. `offset` is where it (or its member) begins in the file; names of headers are in lower case."""

    offset: int
    headers: dict[str, str]
    content: bytes
    truncated: bool = False

    @property
    def type(self) -> str:
        """`response`, `conversion`, `warcinfo`, …"""
        return self.headers.get("warc-type", "")


def warc_records(piece: Piece, max_bytes: int, problems: Problems) -> Iterator[WarcRecord]:
    """The records that begin in the piece's range. Content over `max_bytes` is skipped and counted."""
    with opened(piece.path) as file:
        compression = compression_by_magic(file)
        begin: int | None = piece.start if piece.start == 0 else next_record(file, compression, piece.start)
        while begin is not None and not 0 <= piece.end <= begin:
            stream = Stream(file, compression, begin)
            try:
                while record := stream.record(piece, max_bytes, problems):
                    yield record
                return
            except Unreadable as error:
                place = f"{piece.identity}@{stream.record_start}"
                problems.add(place, error.rule, error.detail)
                begin = next_record(file, compression, stream.record_start + 1)


def compression_by_magic(file: BinaryIO) -> str:
    """How the file is compressed, by its first bytes: names of crawl files are not to be trusted."""
    first = file.read(4)
    return next((suffix for suffix, magic in MAGIC.items() if first.startswith(magic)), "")


def next_record(file: BinaryIO, compression: str, start: int) -> int | None:
    """The offset at or after `start` where a record begins; None at the end of the file."""
    overlap = 256 if not compression else 3
    position = max(0, start - 1) if not compression else start  # a plain record begins after a line end
    file.seek(position)
    window = b""
    while True:
        chunk = read(file, CHUNK)
        window += chunk
        if compression:
            at = window.find(MAGIC[compression])
            while at >= 0:
                if begins_record(file, compression, position + at):
                    return position + at
                at = window.find(MAGIC[compression], at + 1)
        else:
            for found in PLAIN_RECORD.finditer(window):
                if position + found.start() >= start:
                    return position + found.start()
        if not chunk:
            return None
        position += max(0, len(window) - overlap)
        window = window[-overlap:]


def begins_record(file: BinaryIO, compression: str, offset: int) -> bool:
    """Whether a compressed member at `offset` begins with a WARC header. Leaves the file where it was."""
    before = file.tell()
    file.seek(offset)
    try:
        first = next(Decompressor(compression).parts(read(file, 4096)), b"")
    except damage_of(compression):
        first = b""
    file.seek(before)
    return bytes(first[:5]) == b"WARC/"


class Stream:
    """The (decompressed) bytes of a file from a record on."""

    def __init__(self, file: BinaryIO, compression: str, begin: int) -> None:
        self.compression = compression
        file.seek(begin)
        self.chunks = members(file, compression) if compression else self._plain(file, begin)
        self.buffer = b""
        self.at = 0
        self.offset = begin  # in the file, of the first byte of the buffer, or of its member
        self.record_start = begin
        self.damage: Unreadable | None = None  # found while reading a record of which a part could be kept

    def _plain(self, file: BinaryIO, begin: int) -> Iterator[tuple[int, bytes]]:
        while data := read(file, CHUNK):
            yield begin, data
            begin += len(data)

    def _fill(self) -> bool:
        """Append a chunk to the buffer; False at the end."""
        found = next(self.chunks, None)
        if found is None:
            return False
        offset, data = found
        if self.at >= len(self.buffer):
            self.buffer, self.at, self.offset = data, 0, offset
        else:
            if not self.compression:
                self.offset += self.at
            self.buffer, self.at = self.buffer[self.at :] + data, 0
        return True

    def _line(self) -> bytes:
        """The next line with its end; what is left at the end of the file."""
        while (end := self.buffer.find(b"\n", self.at)) < 0:
            if len(self.buffer) - self.at > MAX_HEADER:
                raise Unreadable("broken WARC", "a header line without an end")
            if not self._fill():
                end = len(self.buffer) - 1
                break
        line = self.buffer[self.at : end + 1]
        self.at = end + 1
        return line

    def _content(self, length: int, keep: bool) -> tuple[bytes, bool]:
        """The next `length` bytes (nothing if they are not to be kept), and whether they are all there."""
        parts: list[bytes] = []
        left = length
        while left:
            if self.at >= len(self.buffer):
                try:
                    if not self._fill():
                        return b"".join(parts), False
                except Unreadable as error:
                    if not keep or not parts:
                        raise
                    self.damage = error
                    return b"".join(parts), False
            part = self.buffer[self.at : self.at + left]
            self.at += len(part)
            left -= len(part)
            if keep:
                parts.append(part)
        return b"".join(parts), True

    def record(self, piece: Piece, max_bytes: int, problems: Problems) -> WarcRecord | None:
        """The next record of the range, None after the last one; `Unreadable` where none begins."""
        while True:
            if self.damage is not None:
                raise self.damage
            while True:
                if self.at >= len(self.buffer) and not self._fill():
                    return None
                self.record_start = self.offset if self.compression else self.offset + self.at
                line = self._line()
                if line.strip():
                    break
            if 0 <= piece.end <= self.record_start:
                return None
            if not line.startswith(b"WARC/"):
                raise Unreadable("broken WARC", f"no record begins here: {line[:40]!r}")
            headers = self._headers()
            try:
                length = int(headers.get("content-length", ""))
            except ValueError:
                raise Unreadable("broken WARC", "a record without Content-Length") from None
            start = self.record_start
            keep = length <= max_bytes
            content, complete = self._content(length, keep)
            if not keep:
                place = f"{piece.identity}@{start}"
                problems.add(place, "too long", f"(a record of {length:,} bytes > {max_bytes:,})", size=length)
                continue
            return WarcRecord(start, headers, content, truncated=not complete)

    def _headers(self) -> dict[str, str]:
        """Header lines up to the empty one."""
        headers: dict[str, str] = {}
        name = ""
        for _ in range(1000):
            line = self._line()
            if not line.strip():
                if "warc-target-uri" in headers:  # wget writes it as <URI>
                    headers["warc-target-uri"] = headers["warc-target-uri"].strip("<>")
                return headers
            text = line.decode("utf-8", "replace").rstrip("\r\n")
            if text[0] in " \t" and name:  # folded: goes on from the line above
                headers[name] += " " + text.strip()
                continue
            name, colon, value = text.partition(":")
            if not colon:
                raise Unreadable("broken WARC", f"no header: {text[:40]!r}")
            name = name.strip().lower()
            headers[name] = value.strip()
        raise Unreadable("broken WARC", "a header without an end")
