"""Decompression bombs: whatever the codec and wherever it stands, memory stays small and the reader says what it met.

Each bomb is a file of at most some megabytes that expands to `SIZE`. It is read in a process of its own whose address space
has no room for the expanded text.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import resource
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import brotli  # type: ignore[import-untyped, import-not-found, unused-ignore]
import pyarrow
import pyarrow.parquet
import pytest
from backports import zstd

from ingot.data.read.config import CodeSource, FilesSource
from ingot.data.read.http import decode_content
from ingot.data.read.plan import SPLIT_BYTES, plan
from ingot.data.read.problem import ReadProblems
from ingot.data.read.read import read_split
from tests.data.read.reading import read_all
from tests.forking import forking
from tests.slow import first_fast

SIZE = 204_800_000  # whole blocks of a tar archive; more than MEMORY
MEMORY = 150_000_000  # that readers may take in addition; a chunk of text is 262,144 bytes
PIECE = b"\0" * 10_240_000


def answer(kind: str, path: str, memory: int, pipe: Connection) -> None:
    """Read the file with so much memory in addition to what the process has; say what was found."""
    if kind == "table":  # addresses that Arrow reserves for its pool and its threads are not memory of the reader
        pyarrow.set_memory_pool(pyarrow.system_memory_pool())
        read_all(FilesSource(files=str(Path(path).with_name("small.parquet"))))
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + memory, used + memory))
    if kind == "http":
        encoding = path.rsplit(".", 1)[1]
        pipe.send(str(len(decode_content(Path(path).read_bytes(), encoding, 1_000_000)[0])))
        return
    if kind == "table":  # every row is a document: counted, not held
        problems, rows = ReadProblems(), 0
        whole = FilesSource(files=path)
        for split in plan(whole, None, SPLIT_BYTES).splits:
            rows += sum(len(table) for table in read_split(split, whole, problems))
        pipe.send(f"{rows} {dict(problems.dropped)}")
        return
    source = (CodeSource(code=path) if kind == "code" else FilesSource(files=path)).model_copy(
        update={"max_document_bytes": 1_000_000}
    )
    table, problems = read_all(source)
    pipe.send(f"{len(table)} {dict(problems.dropped)}")


class Compressed:
    """A codec that is fed piece by piece, so that making a bomb needs no memory either."""

    def __init__(self, codec: str) -> None:
        makers: dict[str, Callable[[], object]] = {
            "gz": lambda: zlib.compressobj(9, wbits=31),
            "zlib": lambda: zlib.compressobj(9, wbits=15),
            "deflate": lambda: zlib.compressobj(9, wbits=-15),
            "bz2": bz2.BZ2Compressor,
            "xz": lambda: lzma.LZMACompressor(preset=0),
            "zst": zstd.ZstdCompressor,
            "br": lambda: brotli.Compressor(quality=1, lgwin=24),
        }
        self.codec = makers[codec]()

    def bomb(self, before: bytes = b"", size: int = SIZE) -> Iterator[bytes]:
        feed = getattr(self.codec, "compress", None) or self.codec.process  # type: ignore[attr-defined]
        finish = getattr(self.codec, "finish", None) or self.codec.flush  # type: ignore[attr-defined]
        yield feed(before)
        for _ in range(size // len(PIECE)):
            yield feed(PIECE)
        yield finish()


def read_in_little_memory(kind: str, path: Path) -> str:
    ours, theirs = forking().Pipe(duplex=False)
    process = forking().Process(target=answer, args=(kind, str(path), MEMORY, theirs))
    process.start()
    theirs.close()
    process.join(300)
    assert process.exitcode == 0
    return str(ours.recv())


@pytest.mark.parametrize("codec", first_fast(["gz", "bz2", "xz", "zst"]))
def test_a_file(tmp_path: Path, codec: str) -> None:
    """One line of JSON that never ends."""
    path = tmp_path / f"a.jsonl.{codec}"
    path.write_bytes(b"".join(Compressed(codec).bomb(b'{"text": "')))
    assert path.stat().st_size < SIZE / 100
    assert read_in_little_memory("files", path) == "0 {'too long': 1}"


@pytest.mark.parametrize("encoding", first_fast(["br", "gzip", "deflate", "raw.deflate", "zstd"]))
def test_the_payload_of_a_page(tmp_path: Path, encoding: str) -> None:
    codec = {"gzip": "gz", "deflate": "zlib", "raw.deflate": "deflate", "br": "br", "zstd": "zst"}[encoding]
    path = tmp_path / f"payload.{encoding}"
    path.write_bytes(b"".join(Compressed(codec).bomb()))
    assert read_in_little_memory("http", path) == "1000001"


@pytest.mark.parametrize("codec", first_fast(["zst", "gz"]))
def test_a_record_of_a_crawl(tmp_path: Path, codec: str) -> None:
    """The record says how long it is, or lies about it; what follows the lie is no record."""
    for length, expected in ((SIZE, "0 {'too long': 1}"), (10, "0 {'not a page': 1, 'broken WARC': 1}")):
        head = f"WARC/1.0\r\nWARC-Type: warcinfo\r\nWARC-Record-ID: <urn:uuid:1>\r\nContent-Length: {length}\r\n\r\n"
        path = tmp_path / f"{length}.warc.{codec}"
        path.write_bytes(b"".join(Compressed(codec).bomb(head.encode())))
        assert read_in_little_memory("files", path) == expected


@pytest.mark.parametrize("codec", first_fast(["zst", "gz", "bz2", "xz"]))
def test_a_tar_archive(tmp_path: Path, codec: str) -> None:
    """A member that is too long, and a name that is."""
    for kind, expected in ((tarfile.REGTYPE, "0 {'too long': 1}"), (tarfile.XHDTYPE, "0 {'damaged': 1}")):
        member = tarfile.TarInfo("a.py")
        member.size, member.type = SIZE, kind
        path = tmp_path / f"a.tar.{codec}"
        path.write_bytes(b"".join(Compressed(codec).bomb(member.tobuf())))
        assert read_in_little_memory("code", path) == expected


@pytest.mark.parametrize("method", first_fast([zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]))
def test_a_zip_archive(tmp_path: Path, method: int) -> None:
    """The directory says that a member has ten bytes."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as archive, archive.open("a.py", "w", force_zip64=False) as member:
        for _ in range(SIZE // len(PIECE)):
            member.write(PIECE)
    said = SIZE.to_bytes(4, "little")
    path = tmp_path / "a.zip"
    path.write_bytes(made.getvalue().replace(said, (10).to_bytes(4, "little")))
    assert read_in_little_memory("code", path) in (
        "0 {'binary': 1}",
        "0 {'damaged': 1}",
    )  # ten NULs, or a wrong checksum


@pytest.mark.parametrize("form", ["dictionary", "prefix", "arrow"])
def test_a_table(tmp_path: Path, form: str) -> None:
    """Rows that share one long text: stored once, in a dictionary or as the prefix of the text before."""
    count, text = 1500, "a" * 200_000
    rows = pyarrow.table({"text": pyarrow.array([text], pyarrow.string()).take(pyarrow.array([0] * count))})
    path = tmp_path / ("a.arrow" if form == "arrow" else "a.parquet")
    if form == "arrow":
        coded = pyarrow.table({"text": rows.column("text").dictionary_encode()})
        with pyarrow.ipc.new_stream(path, coded.schema) as stream:
            stream.write_table(coded)
    elif form == "dictionary":
        pyarrow.parquet.write_table(rows, path, compression="zstd")
    else:
        encoding = {"text": "DELTA_BYTE_ARRAY"}
        pyarrow.parquet.write_table(rows, path, compression="zstd", use_dictionary=False, column_encoding=encoding)
    pyarrow.parquet.write_table(pyarrow.table({"text": ["small"]}), tmp_path / "small.parquet")
    assert path.stat().st_size < SIZE / 100
    assert read_in_little_memory("table", path) == f"{count} {{}}"


def test_a_list_of_words(tmp_path: Path) -> None:
    from ingot.data.read.streams import read_list
    from ingot.workspace.errors import DataError

    path = tmp_path / "words.gz"
    path.write_bytes(gzip.compress(b"word\n" * 1000))
    assert read_list(str(path)) == ["word"]
    path.write_bytes(b"".join(Compressed("gz").bomb(size=307_200_000)))
    with pytest.raises(DataError, match=r"more than 268,435,456 bytes"):
        read_list(str(path))
