"""WARC records and the pages in them, against warcio."""

from __future__ import annotations

import gzip
import io
import random
import zlib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import zstandard
from warcio.archiveiterator import ArchiveIterator

from ingot.data.read.config import FilesSource
from ingot.data.read.http import decode_content, parse_response, unchunk
from ingot.data.read.problem import ReadProblems
from ingot.data.read.split import FilePiece
from ingot.data.read.warc import WarcRecord, warc_records
from tests.data.read.reading import read_all, texts

PLENTY = 10**9
FILES = [
    "IAH-urls-wget.warc.gz", "dolma-sample-0000.warc.gz", "dolma-sample-0001.warc.gz", "example-iana.org-chunked.warc",
    "example-trunc.warc", "whirlwind.warc.gz", "whirlwind.warc.wat.gz", "whirlwind.warc.wet.gz",
]  # fmt: skip


def ours(path: Path, problems: ReadProblems | None = None, start: int = 0, end: int = -1) -> list[WarcRecord]:
    piece = FilePiece(str(path), f"s:{path.name}", "warc", 0, start, end)
    return list(warc_records(piece, PLENTY, problems if problems is not None else ReadProblems()))


def theirs(path: Path) -> list[tuple[dict[str, str], bytes]]:
    with path.open("rb") as file:
        records = ArchiveIterator(file, no_record_parse=True)
        return [
            ({name.lower(): value for name, value in record.rec_headers.headers}, record.raw_stream.read())
            for record in records
        ]


def a_record(number: int, body: bytes, kind: str = "text/html") -> bytes:
    payload = b"HTTP/1.1 200 OK\r\nContent-Type: " + kind.encode() + b"\r\n\r\n" + body
    head = f"WARC/1.0\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:uuid:{number}>\r\nWARC-Target-URI: http://x/{number}\r\n"
    head += (
        f"WARC-Date: 2026-01-01T00:00:00Z\r\nContent-Type: application/http\r\nContent-Length: {len(payload)}\r\n\r\n"
    )
    return head.encode() + payload + b"\r\n\r\n"


def some_records(count: int) -> list[bytes]:
    shuffler = random.Random(3)
    letters = [bytes(shuffler.choices(b"abcdefgh ijkl\n", k=shuffler.randrange(20, 4000))) for _ in range(count)]
    return [a_record(number, b"<p>" + body) for number, body in enumerate(letters)]


@pytest.mark.parametrize("name", FILES)
def test_records_equal_those_of_warcio(shared_data: Path, name: str) -> None:
    expected = theirs(shared_data / "warc" / name)
    found = ours(shared_data / "warc" / name)
    assert len(expected) > 0
    assert [(record.headers, record.content) for record in found[: len(expected)]] == expected
    assert len(found) == len(expected)


@pytest.mark.parametrize("name", FILES)
def test_payloads_equal_those_of_warcio(shared_data: Path, name: str) -> None:
    """Chunks joined and content encodings undone, wherever warcio can do it."""
    expected: dict[str, bytes] = {}
    with (shared_data / "warc" / name).open("rb") as file:
        for record in ArchiveIterator(file):
            if record.rec_type == "response" and record.http_headers is not None:
                expected[record.rec_headers.get_header("WARC-Record-ID")] = record.content_stream().read()
    found = {}
    for record in ours(shared_data / "warc" / name):
        response = parse_response(record.content, PLENTY) if record.type == "response" else None
        if response is not None:
            found[record.headers["warc-record-id"]] = response.payload
    assert found == expected


@pytest.mark.parametrize("compression", ["", ".gz", ".zst"])
def test_ranges_give_every_record_once(tmp_path: Path, compression: str) -> None:
    records = some_records(60)
    path = tmp_path / f"a.warc{compression}"
    pack: Any = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress}[compression]
    path.write_bytes(b"".join(map(pack, records)))
    whole = ours(path)
    assert [record.headers["warc-record-id"] for record in whole] == [f"<urn:uuid:{n}>" for n in range(60)]
    size = path.stat().st_size
    shuffler = random.Random(1)
    for _ in range(15):
        edges = [0, *sorted(shuffler.sample(range(1, size), 4)), size]
        parts = [record for start, end in pairwise(edges) for record in ours(path, None, start, end)]
        assert parts == whole


def test_splits_of_a_source_give_the_same_documents(tmp_path: Path) -> None:
    for name, pack in (("a.warc", bytes), ("b.warc.gz", gzip.compress)):
        (tmp_path / name).write_bytes(b"".join(pack(record) for record in some_records(50)))
        source = FilesSource(files=str(tmp_path / name))
        whole, _ = read_all(source)
        parts, _ = read_all(source, split_bytes=5000)
        assert len(whole) == 50
        assert parts.combine_chunks() == whole.combine_chunks()


def test_a_broken_member_costs_itself_only(tmp_path: Path) -> None:
    members = [gzip.compress(record) for record in some_records(9)]
    members[3] = members[3][:30] + b"\xff" * (len(members[3]) - 30)
    members[6] = members[6][: len(members[6]) // 2]
    (tmp_path / "a.warc.gz").write_bytes(b"".join(members))
    problems = ReadProblems()
    found = [record.headers["warc-record-id"][10:-1] for record in ours(tmp_path / "a.warc.gz", problems)]
    assert [number for number in found if number not in "36"] == list("0124578")
    assert sum(problems.dropped.values()) >= 2
    members = [gzip.compress(record) for record in some_records(9)]
    (tmp_path / "cut.warc.gz").write_bytes(b"".join(members)[:-200])
    problems = ReadProblems()
    assert len(ours(tmp_path / "cut.warc.gz", problems)) in (8, 9)  # what there is of the last one may still be a page
    assert problems.dropped == {"truncated": 1}


def test_a_broken_plain_record_costs_itself_only(tmp_path: Path) -> None:
    records = some_records(6)
    records[2] = records[2].replace(b"Content-Length: ", b"Content-Length: 9", 1)  # swallows the ones behind it
    records[4] = records[4].replace(b"WARC/1.0\r\nWARC-Type", b"WRAC/1.0\r\nWARC-Type", 1)
    (tmp_path / "a.warc").write_bytes(b"".join(records))
    problems = ReadProblems()
    found = [record.headers["warc-record-id"][10:-1] for record in ours(tmp_path / "a.warc", problems)]
    assert set("015") - set(found) <= {"5"}
    (tmp_path / "b.warc").write_bytes(
        records[0] + b"garbage between records\r\n" + records[1] + records[4] + records[5]
    )
    problems = ReadProblems()
    found = [record.headers["warc-record-id"][10:-1] for record in ours(tmp_path / "b.warc", problems)]
    assert found == ["0", "1", "5"]
    assert problems.dropped == {"broken WARC": 2}


def test_pages(tmp_path: Path) -> None:
    bodies = {
        "plain": a_record(1, b"<p>caf\xc3\xa9</p>"),
        "header": a_record(2, b"<p>caf\xe9</p>", "text/html; charset=iso-8859-1"),
        "meta": a_record(3, "<meta charset='shift_jis'><p>日本</p>".encode("shift_jis")),
        "mark": a_record(4, "\ufeff<p>café</p>".encode("utf-16-le"), "text/html; charset=utf-8"),
        "image": a_record(5, b"\x89PNG", "image/png"),
        "broken": a_record(6, b"<meta charset=utf-8><p>a\xff\xfeb</p>"),
        "missing": a_record(7, b"<p>gone").replace(b"200 OK", b"404 No"),
        "long": a_record(8, b"<p>" + b"x" * 3000),
    }
    (tmp_path / "a.warc.gz").write_bytes(b"".join(gzip.compress(record) for record in bodies.values()))
    table, problems = read_all(FilesSource(files=str(tmp_path), max_document_bytes=3000))
    assert texts(table) == [
        "<p>café</p>", "<p>café</p>", "<meta charset='shift_jis'><p>日本</p>", "<p>café</p>",
        "<meta charset=utf-8><p>a\ufffd\ufffdb</p>",
    ]  # fmt: skip
    assert table.column("id").to_pylist() == ["1", "2", "3", "4", "6"]
    first = table.slice(0, 1).to_pylist()[0]
    assert (first["url"], first["date"], first["mime"]) == ("http://x/1", "2026-01-01T00:00:00Z", "text/html")
    assert problems.dropped == {"not text": 1, "not a page": 1, "too long": 1}
    assert problems.repaired == {"not UTF-8": 1}


def test_payload_encodings() -> None:
    text = b"some text " * 500
    deflated = zlib.compress(text)
    raw = zlib.compressobj(wbits=-15)
    assert decode_content(gzip.compress(text), "gzip", PLENTY) == (text, "")
    assert decode_content(deflated, "deflate", PLENTY) == (text, "")
    assert decode_content(raw.compress(text) + raw.flush(), "deflate", PLENTY) == (text, "")
    assert decode_content(zstandard.compress(text), "zstd", PLENTY) == (text, "")
    assert decode_content(text, "gzip", PLENTY) == (text, "")  # decoded by the crawler, header kept
    half, problem = decode_content(gzip.compress(random.Random(1).randbytes(5000))[:2000], "gzip", PLENTY)
    assert 0 < len(half) < 5000
    assert problem == "content encoding ends early"
    assert len(decode_content(gzip.compress(b"0" * 10**7), "gzip", 1000)[0]) == 1001  # a bomb stops at the limit
    assert unchunk(b"4\r\nWiki\r\n5;x=y\r\npedia\r\n0\r\n\r\n") == (b"Wikipedia", "")
    assert unchunk(b"4\r\nWiki\r\n50\r\npedia") == (b"Wikipedia", "chunks end early")
    assert unchunk(b"<html>not chunked") == (b"<html>not chunked", "")
    brotli: Any = pytest.importorskip("brotli")
    assert decode_content(brotli.compress(text), "br", PLENTY) == (text, "")


def test_the_module_of_the_other_side_reads_our_fixture() -> None:
    """The records these tests write are WARC as warcio understands it."""
    stream = io.BytesIO(b"".join(gzip.compress(record) for record in some_records(5)))
    assert [record.content_stream().read()[:3] for record in ArchiveIterator(stream)] == [b"<p>"] * 5
