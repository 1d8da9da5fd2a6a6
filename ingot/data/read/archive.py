"""Source trees in tar and zip archives: one document a file. Ids are NAME:ARCHIVE!PATH."""

from __future__ import annotations

import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from typing import BinaryIO

from ingot.data.read.config import CodeSource
from ingot.data.read.document import Document
from ingot.data.read.find import printable
from ingot.data.read.plain import code_document
from ingot.data.read.problem import Problems
from ingot.data.read.split import Piece
from ingot.data.read.streams import damage_of, opened, zstandard

DAMAGE = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, NotImplementedError)


def read_archive(piece: Piece, source: CodeSource, problems: Problems) -> Iterator[Document]:
    """The files of an archive, in its order; a damaged archive gives those before the damage."""
    zst = piece.path.lower().endswith(".zst")
    damage: tuple[type[Exception], ...] = (*DAMAGE, *damage_of(".zst")) if zst else DAMAGE
    with opened(piece.path) as file:
        members = zip_members if piece.path.lower().endswith(".zip") else tar_members
        stream = zstandard().ZstdDecompressor().stream_reader(file, read_across_frames=True) if zst else file
        path = ""
        try:
            for path, size, content in members(stream, source):
                identity = f"{piece.identity}!{path}"
                if content is None:
                    problems.add(identity, "too long", f"({size:,} bytes > {source.max_document_bytes:,})", size=size)
                else:
                    yield from code_document(content, identity, path, source, problems)
        except damage as error:
            problems.add(piece.identity, "damaged", f"after {path or 'its beginning'} ({error})", size=piece.size)


def wanted(path: str, source: CodeSource) -> bool:
    """Whether no folder on the way to the file is one to skip."""
    return not set(source.skip).intersection(path.split("/")[:-1])


def tar_members(file: BinaryIO, source: CodeSource) -> Iterator[tuple[str, int, bytes | None]]:
    """Path, size and content of the files of a tar archive; no content where it is too long."""
    with tarfile.open(fileobj=file, mode="r|*") as archive:
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
                yield printable(member.filename), member.file_size, archive.read(member) if small else None
