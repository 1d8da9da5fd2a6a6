"""Opens files: any fsspec URL, decompressed on the way, a chunk at a time.

Invariant: a damaged or truncated file gives every byte that can still be decompressed, and then `Unreadable`. Memory
does not grow with the file, nor with what a byte of it expands to: every codec is asked for at most `CHUNK` bytes of
text at a time, so that a decompression bomb costs its reader no more than a book does.
"""

from __future__ import annotations

import bz2
import lzma
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

import fsspec

from ingot.data.read.problem import Unreadable
from ingot.workspace.errors import DataError, IngotError
from ingot.workspace.packages import install_extra

CHUNK = 1 << 18
INPUT = 1 << 15  # of compressed input at a time: what follows a member in it is copied
WHOLE = 1 << 28  # bytes of a file or line that is held in memory as it is
MEMORY = 1 << 28  # an .xz file may ask its reader for gigabytes; `xz -9` needs 65 MB
WBITS = {".gz": 31, "zlib": 15, "deflate": -15}  # of zlib: which header it expects
COMPRESSED = (".gz", ".bz2", ".xz", ".zst")


@contextmanager
def opened(path: str) -> Iterator[BinaryIO]:
    """A file to read bytes from; a missing, locked or broken one is `Unreadable`."""
    try:
        file_system, inside = fsspec.core.url_to_fs(path)
        file = file_system.open(inside, "rb")
    except OSError as error:
        raise Unreadable("cannot be opened", f"({error.strerror or type(error).__name__})") from None
    with file:
        yield cast(BinaryIO, file)


def compression_of(path: str) -> str:
    """The suffix that says how a file is compressed, or nothing."""
    lower = path.lower()
    return next((suffix for suffix in COMPRESSED if lower.endswith(suffix)), "")


def brotli() -> Any:
    """The module, or how to get it."""
    try:
        import brotli  # type: ignore[import-untyped, import-not-found, unused-ignore]
    except ImportError:
        raise IngotError("reading brotli needs brotli", fix=install_extra("data")) from None
    return brotli


def zstd() -> Any:
    """The module (in the standard library from Python 3.14 on), or how to get it."""
    if sys.version_info >= (3, 14):
        from compression import zstd

        return zstd
    try:
        from backports import zstd
    except ImportError:
        raise IngotError("reading zstd needs backports.zstd", fix=install_extra("data")) from None
    return zstd


class Decompressor:
    """One gzip member, zstd frame, … of a stream: `parts` gives what a piece of input holds, at most `CHUNK` at a time.

    `finished` after the last byte of the member; `rest` is then the input that follows it.
    """

    def __init__(self, compression: str) -> None:
        self.finished = False
        self.rest = b""
        if compression == ".br":
            self._parts, self._current = self._brotli, brotli().Decompressor()
        elif compression in WBITS:
            self._parts, self._current = self._zlib, zlib.decompressobj(wbits=WBITS[compression])
        else:
            self._parts = self._buffered
            if compression == ".bz2":
                self._current = bz2.BZ2Decompressor()
            elif compression == ".xz":
                self._current = lzma.LZMADecompressor(memlimit=MEMORY)
            else:
                self._current = zstd().ZstdDecompressor()  # refuses windows of more than 128 MB by itself

    def parts(self, data: bytes) -> Iterator[bytes]:
        """The text of `data`, the next piece of input; raises one of `damage_of`."""
        return (part for part in self._parts(data) if part)

    def _zlib(self, data: bytes) -> Iterator[bytes]:
        while data and not self.finished:
            yield self._current.decompress(data, CHUNK)
            data = self._current.unconsumed_tail
            self.finished = self._current.eof
        while not self.finished and (part := self._current.decompress(b"", CHUNK)):  # held back by the limit
            yield part
            self.finished = self._current.eof
        self.rest = self._current.unused_data

    def _buffered(self, data: bytes) -> Iterator[bytes]:
        while not self.finished:
            yield self._current.decompress(data, CHUNK)
            self.finished, data = self._current.eof, b""
            if self._current.needs_input:
                break
        self.rest = self._current.unused_data

    def _brotli(self, data: bytes) -> Iterator[bytes]:
        yield self._current.process(data, output_buffer_limit=CHUNK)
        while not self._current.can_accept_more_data():
            yield self._current.process(b"", output_buffer_limit=CHUNK)
        self.finished = self._current.is_finished()


def damage_of(compression: str) -> tuple[type[Exception], ...]:
    """The exceptions with which a decompressor says that its input is damaged."""
    if compression == ".zst":
        return (zstd().ZstdError,)
    if compression == ".br":
        return (brotli().error,)
    return (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError)


def members(file: BinaryIO, compression: str) -> Iterator[tuple[int, bytes]]:
    """The content of a compressed file from its current position; with each chunk, where its member begins."""
    damage = damage_of(compression)
    read_until = member = file.tell()
    current: Decompressor | None = None
    given = 0
    while data := read(file, INPUT):
        read_until += len(data)
        while data:
            if current is None:
                member, current = read_until - len(data), Decompressor(compression)
            try:
                for part in current.parts(data):
                    given += len(part)
                    yield member, part
            except damage as error:
                raise Unreadable("damaged", f"after {given:,} bytes ({error})") from None
            data = b""
            if current.finished:  # another member may follow; zeros between them are padding
                data, current = current.rest.lstrip(b"\0"), None
    if current is not None:
        raise Unreadable("truncated", f"after {given:,} bytes")


def chunks(file: BinaryIO, compression: str) -> Iterator[bytes]:
    """The content of a file from its current position, some hundred kilobytes at a time."""
    if compression:
        yield from (part for _, part in members(file, compression))
        return
    while data := read(file, CHUNK):
        yield data


def read(file: BinaryIO, size: int) -> bytes:
    """`file.read`, where a failing disk or network is `Unreadable`."""
    try:
        return file.read(size)
    except OSError as error:
        raise Unreadable("cannot be read", f"({error.strerror or error})") from None


def whole(file: BinaryIO, path: str) -> bytes:
    """The content of a file that a step reads besides the documents (a list, a vocabulary, an eval), or `Unreadable`."""
    parts, size = [], 0
    for part in chunks(file, compression_of(path)):
        parts.append(part)
        size += len(part)
        if size > WHOLE:
            raise Unreadable("too long", f"(more than {WHOLE:,} bytes)")
    return b"".join(parts)


def whole_lines(file: BinaryIO, path: str) -> Iterator[bytes]:
    """The lines of such a file, one at a time."""
    held: list[bytes] = []  # of a line whose end is not read yet
    size = 0
    for part in chunks(file, compression_of(path)):
        *lines, begun = part.split(b"\n")
        if lines:
            yield b"".join([*held, lines[0]])
            yield from lines[1:]
            held, size = [], 0
        held.append(begun)
        size += len(begun)
        if size > WHOLE:
            raise Unreadable("too long", f"(a line of more than {WHOLE:,} bytes)")
    if size:
        yield b"".join(held)


def read_list(path: str) -> list[str]:
    """The entries of a user's list (words, phrases, hosts, addresses), each once: one a line, `#` begins a comment."""
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
