"""Opening files: any fsspec URL, decompressed on the way, a chunk at a time.

Invariant: a damaged or truncated file gives every byte that can still be decompressed, and then `Unreadable`. Memory
does not grow with the file.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

from ingot.data.read.problem import Unreadable
from ingot.workspace.errors import IngotError

CHUNK = 1 << 18
COMPRESSED = (".gz", ".bz2", ".xz", ".zst")


@contextmanager
def opened(path: str) -> Iterator[BinaryIO]:
    """A file to read bytes from; a missing, locked or broken one is `Unreadable`."""
    import fsspec

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


def zstandard() -> Any:
    """The module, or how to get it."""
    try:
        import zstandard
    except ImportError:
        raise IngotError("reading .zst files needs zstandard", fix='pip install "ingot[data]"') from None
    return zstandard


def decompressor(compression: str) -> Callable[[], Any]:
    """Makes objects that decompress one gzip member, one zstd frame and so on: `decompress`, `eof`, `unused_data`."""
    if compression == ".gz":
        return lambda: zlib.decompressobj(wbits=31)
    if compression == ".bz2":
        return bz2.BZ2Decompressor
    if compression == ".xz":
        return lzma.LZMADecompressor
    return cast(Callable[[], Any], zstandard().ZstdDecompressor().decompressobj)


def damage_of(compression: str) -> tuple[type[Exception], ...]:
    """The exceptions with which a decompressor says that its input is damaged."""
    if compression == ".zst":
        return (zstandard().ZstdError,)
    return (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError)


def chunks(file: BinaryIO, compression: str) -> Iterator[bytes]:
    """The content of a file from its current position, some hundred kilobytes at a time."""
    if not compression:
        while data := read(file, CHUNK):
            yield data
        return
    make, damage = decompressor(compression), damage_of(compression)
    current, given = None, 0
    while data := read(file, CHUNK):
        while data:
            current = current or make()
            try:
                plain = current.decompress(data)
            except damage as error:
                raise Unreadable("damaged", f"after {given:,} bytes ({error})") from None
            given += len(plain)
            if plain:
                yield plain
            data = b""
            if current.eof:  # another member may follow; zeros between them are padding
                data, current = current.unused_data.lstrip(b"\0"), None
    if current is not None:
        raise Unreadable("truncated", f"after {given:,} bytes")


def read(file: BinaryIO, size: int) -> bytes:
    """`file.read`, where a failing disk or network is `Unreadable`."""
    try:
        return file.read(size)
    except OSError as error:
        raise Unreadable("cannot be read", f"({error.strerror or error})") from None
