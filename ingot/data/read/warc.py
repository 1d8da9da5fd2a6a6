"""Reads WARC, WET and WAT files (ISO 28500): records, whatever the compression, however damaged.

    plain        WARC/1.0 CRLF headers CRLF CRLF content CRLF CRLF, again and again
    compressed   a gzip member or zstd frame a record (or several records in one)

fastwarc parses the records. After damage (a broken member, a header that is none, a wrong length) reading goes on at the
next position where a record begins; so it does at the start of a byte range. In a compressed file a record begins at a member
whose text begins with `WARC/`, in a plain one at a line `WARC/1.x` followed by a `WARC-…` or `Content-…` header.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

from ingot.data.read.problem import ReadProblems, Unreadable
from ingot.data.read.split import FilePiece
from ingot.data.read.streams import CHUNK, Decompressor, damage_of, members, opened, read
from ingot.workspace.errors import IngotError
from ingot.workspace.packages import install_extra

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


def warc_records(piece: FilePiece, max_bytes: int, problems: ReadProblems) -> Iterator[WarcRecord]:
    """The records that begin in the piece's range. Content over `max_bytes` is skipped and counted."""
    with opened(piece.path) as file:
        compression = compression_by_magic(file)
        begin: int | None = piece.start if piece.start == 0 else next_record(file, compression, piece.start)
        unsaid: tuple[str, str, str] | None = None  # damage behind a record: found again at `begin`, or before it
        while begin is not None and not 0 <= piece.end <= begin:
            stretch = Stretch(file, compression, begin)
            for record in stretch.records(piece, max_bytes, problems):
                if unsaid is not None:  # it was not this record that could not be read
                    problems.add(*unsaid)
                    unsaid = None
                yield record
            if stretch.failure is None:
                break
            if not stretch.exact and 0 <= piece.end <= stretch.end:
                break  # the damage is behind the range
            unsaid = (f"{piece.identity}@{stretch.at}", stretch.failure.rule, stretch.failure.detail)
            begin = next_record(file, compression, stretch.at + 1)
            if stretch.exact:
                problems.add(*unsaid)
                unsaid = None
        if unsaid is not None and (begin is None or Stretch(file, compression, begin).begins_well()):
            problems.add(*unsaid)  # else it belongs to the range that begins there


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


class Content:
    """The (decompressed) bytes of a file from a record on, as fastwarc reads them: damage is their end, and noted."""

    def __init__(self, file: BinaryIO, compression: str, begin: int) -> None:
        file.seek(begin)
        self._chunks = members(file, compression) if compression else plain(file, begin)
        self.compressed = bool(compression)
        self._begin = begin
        self._held = b""
        self._given = 0
        self._members: list[int] = []  # offsets in the file of the members met so far,
        self._starts: list[int] = []  # and where the text of each begins in what was given
        self.damage: Unreadable | None = None

    def tell(self) -> int:
        """How much was given; fastwarc asks for it."""
        return self._given

    def read(self, size: int = CHUNK) -> bytes:
        """Some of the next bytes, at most `size`; nothing at the end."""
        if not self._held and self.damage is None:
            try:
                member, self._held = next(self._chunks, (-1, b""))
            except Unreadable as error:
                self.damage = error
            if self._held and self._members[-1:] != [member]:
                self._members.append(member)
                self._starts.append(self._given)
        part, self._held = self._held[:size], self._held[size:]
        self._given += len(part)
        return part

    @property
    def newlines(self) -> bool:
        """Whether the first line ends in a mere newline."""
        if not self._held:
            self._held, self._given = self.read(), 0
        line, end, _ = self._held.partition(b"\n")
        return bool(end) and not line.endswith(b"\r")

    def offset(self, position: int) -> int:
        """Where in the file the byte that was given as number `position` is; where its member begins, if it is in one."""
        if not self.compressed:
            return self._begin + position
        return self._members[bisect_right(self._starts, position) - 1] if self._members else self._begin

    def last_member(self) -> int:
        """Where the member that is read now begins."""
        return self._members[-1] if self._members else self._begin


def plain(file: BinaryIO, begin: int) -> Iterator[tuple[int, bytes]]:
    """The chunks of a file that is not compressed."""
    while data := read(file, CHUNK):
        yield begin, data


class Stretch:
    """Records one after another, up to the first damage. `failure` says what it was, `at` at which offset or after which
    record, `exact` whether `at` is the damaged record itself."""

    def __init__(self, file: BinaryIO, compression: str, begin: int) -> None:
        self.content = Content(file, compression, begin)
        self.at = begin
        self.exact = True
        self.end = begin  # of the last record: it ends there or later
        self.failure: Unreadable | None = None

    def begins_well(self) -> bool:
        """Whether a record can be read at the beginning."""
        everything = FilePiece("", ":", "warc", 0)
        next(self.records(everything, 0, ReadProblems()), None)
        return self.failure is None or not self.exact

    def records(self, piece: FilePiece, max_bytes: int, problems: ReadProblems) -> Iterator[WarcRecord]:
        """The records of the range."""
        try:
            for found in fastwarc(self.content):
                start = self.content.offset(found.stream_pos)
                if 0 <= piece.end <= start:
                    return
                self.at, self.exact = start, True
                headers = headers_of(found)
                length = headers.get("content-length", "")
                if not length.isascii() or not length.isdigit():
                    raise self.content.damage or Unreadable("broken WARC", "a record without Content-Length")
                if int(length) > max_bytes:
                    found.consume()
                    if self.content.damage is None:
                        place, detail = (
                            f"{piece.identity}@{start}",
                            f"(a record of {int(length):,} bytes > {max_bytes:,})",
                        )
                        problems.add(place, "too long", detail, size=int(length))
                else:
                    content = found.reader.read()
                    if content or self.content.damage is None:
                        yield WarcRecord(start, headers, content, truncated=len(content) < int(length))
                self.exact = False
                if not self.content.compressed:
                    head = sum(len(name) + len(value) + 4 for name, value in headers.items()) + len("WARC/1.0") + 4
                    self.end = start + head + int(length)
            if self.content.damage is not None:
                raise self.content.damage
        except Unreadable as error:
            self.failure = error
        except OSError as error:  # what fastwarc raises where no header is
            self.failure = self.content.damage or Unreadable("broken WARC", f"no record begins here: {error}")
        if self.failure is not None and self.failure is self.content.damage:
            self.at, self.exact = self.content.last_member(), True


def fastwarc(content: Content) -> Iterator[Any]:
    """The records as fastwarc parses them; headers whose lines end in a mere newline are read, too."""
    try:
        from fastwarc.warc import ArchiveIterator
    except ImportError:
        raise IngotError("reading WARC files needs fastwarc", fix=install_extra("data")) from None
    options: dict[str, Any] = {"parse_http": False, "stream_detect": False, "max_header_len": MAX_HEADER}
    return iter(ArchiveIterator(cast(BinaryIO, content), quirks_mode=content.newlines, **options))


def headers_of(found: Any) -> dict[str, str]:
    """The headers, names in lower case."""
    headers = {name.lower(): value for name, value in found.headers}
    if "warc-target-uri" in headers:  # wget writes it as <URI>
        headers["warc-target-uri"] = headers["warc-target-uri"].strip("<>")
    return headers
