"""Reads source trees in tar and zip archives: one document a file. Ids are NAME:ARCHIVE!PATH.

Archives are not to be trusted: tar archives are decompressed by `members` (streams.py), a few hundred kilobytes at a
time; of a zip archive no member gives more than the size that its directory states, whatever it expands to.
"""

from __future__ import annotations

import lzma
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from typing import BinaryIO, cast

from ingot.data.read.config import CodeSource
from ingot.data.read.document import Document
from ingot.data.read.find import printable
from ingot.data.read.plain import code_document
from ingot.data.read.problem import ReadProblems, Unreadable
from ingot.data.read.split import FilePiece
from ingot.data.read.streams import Decompressor, chunks, opened

DAMAGE = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, NotImplementedError)
MAGIC = {".gz": b"\x1f\x8b", ".bz2": b"BZh", ".xz": b"\xfd7zXZ\0", ".zst": b"\x28\xb5\x2f\xfd"}
NAMES = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
MAX_NAMES = 1 << 20  # bytes of long names and of other attributes before a member
ZIP_READ = 4096  # bytes at a time: of LZMA, on which zipfile sets no limit, they are 30 MB of text at most
NAME_LENGTHS = 26  # where they are in the header of a member of a zip archive


def read_archive(piece: FilePiece, source: CodeSource, problems: ReadProblems) -> Iterator[Document]:
    """The files of an archive, in its order; a damaged archive gives those before the damage."""
    with opened(piece.path) as file:
        members = zip_members if piece.path.lower().endswith(".zip") else tar_members
        path = ""
        try:
            for path, size, content in members(file, source):
                identity = f"{piece.identity}!{path}"
                if content is None:
                    problems.add(identity, "too long", f"({size:,} bytes > {source.max_document_bytes:,})", size=size)
                else:
                    yield from code_document(content, identity, path, source, problems)
        except (*DAMAGE, Unreadable) as error:
            problems.add(piece.identity, "damaged", f"after {path or 'its beginning'} ({error})", size=piece.size)


def wanted(path: str, source: CodeSource) -> bool:
    """Whether no folder on the way to the file is one to skip."""
    return not set(source.skip).intersection(path.split("/")[:-1])


class ArchiveMember(tarfile.TarInfo):
    """A member of a tar archive; tarfile holds long names in memory, however long they are."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> ArchiveMember:
        """The header of a member."""
        member = super().frombuf(buf, encoding, errors)
        if member.type in NAMES and member.size > MAX_NAMES:
            raise tarfile.ReadError(f"a name of {member.size:,} bytes")
        return member


class Decompressed:
    """What a compressed file holds, to be read in order."""

    def __init__(self, file: BinaryIO) -> None:
        first = file.read(8)
        file.seek(0)
        self._chunks = chunks(file, next((suffix for suffix, magic in MAGIC.items() if first.startswith(magic)), ""))
        self._held = b""

    def read(self, size: int) -> bytes:
        """The next `size` bytes, fewer at the end."""
        parts, left = [], size
        while left and (self._held or (chunk := next(self._chunks, b""))):
            held = self._held or chunk
            parts.append(held[:left])
            self._held = held[left:]
            left -= len(parts[-1])
        return b"".join(parts)


def tar_members(file: BinaryIO, source: CodeSource) -> Iterator[tuple[str, int, bytes | None]]:
    """Path, size and content of the files of a tar archive; no content where it is too long."""
    with tarfile.open(fileobj=cast(BinaryIO, Decompressed(file)), mode="r|", tarinfo=ArchiveMember) as archive:
        for member in archive:
            if member.isfile() and wanted(member.name, source):
                small = member.size <= source.max_document_bytes
                content = archive.extractfile(member) if small else None
                yield printable(member.name), member.size, content.read() if content else None


def zip_members(file: BinaryIO, source: CodeSource) -> Iterator[tuple[str, int, bytes | None]]:
    """Path, size and content of the files of a zip archive; no content where it is too long."""
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            if not member.is_dir() and wanted(member.filename, source):
                small = member.file_size <= source.max_document_bytes
                content = zip_content(archive, file, member) if small else None
                yield printable(member.filename), member.file_size, content


def zip_content(archive: zipfile.ZipFile, file: BinaryIO, member: zipfile.ZipInfo) -> bytes:
    """The bytes of a member, as many as it says that it has."""
    parts: list[bytes] = []
    if member.compress_type == zipfile.ZIP_BZIP2:  # of which zipfile decompresses whole blocks: 46 MB of one letter
        file.seek(member.header_offset + NAME_LENGTHS)
        name, extra = struct.unpack("<HH", file.read(4))
        file.seek(name + extra, 1)
        for part in Decompressor(".bz2").parts(file.read(member.compress_size)):
            parts.append(part)
            if sum(map(len, parts)) >= member.file_size:
                break
        return b"".join(parts)[: member.file_size]
    with archive.open(member) as content:
        content.MIN_READ_SIZE = ZIP_READ  # type: ignore[attr-defined]
        while part := content.read(ZIP_READ):
            parts.append(part)
    return b"".join(parts)
