"""JSON lines: good rows, every way a row can be broken, ranges, and lines too long to hold."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import random
import tracemalloc
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from ingot.data.read.config import FilesSource
from ingot.data.read.jsonl import line_blocks
from ingot.data.read.problem import ReadProblems
from ingot.data.read.split import FilePiece
from ingot.workspace.errors import DataError
from tests.data.read.reading import read_all, texts
from tests.making.rows import read_rows

PACK: dict[str, Any] = {
    "": bytes,
    ".gz": gzip.compress,
    ".zst": zstandard.ZstdCompressor().compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
}


def write(path: Path, lines: list[bytes]) -> FilesSource:
    path.write_bytes(
        PACK["." + path.name.split(".", 2)[2] if path.name.count(".") > 1 else ""](b"\n".join(lines) + b"\n")
    )
    return FilesSource(files=str(path), name="s")


@pytest.mark.parametrize("compression", list(PACK))
def test_broken_rows_cost_themselves_only(tmp_path: Path, compression: str) -> None:
    name = f"rows.jsonl{compression}"
    lines = [
        json.dumps({"text": "one\u2028still one"}, ensure_ascii=False).encode(),  # splitlines would cut this row
        b"{not json",
        b"",
        b"[1, 2]",
        b'{"other": "x"}',
        b'{"text": 3}',
        b'{"text": "  "}',
        b'{"text": "\\ud800!"}',
        b'{"text": "a\\u0000b"}',
        b'{"text": "caf\xe9"}',
        b"{" * 100_000,
        b'{"text": "la\\r\\nst", "id": "mine", "url": "http://x", "score": 2, "n": true}',
        b'{"text": "number", "id": 17, "url": "\\udc00", "score": "high"}',
    ]
    source = write(tmp_path / name, lines)
    source = source.model_copy(update={"keep": {"score": "number", "n": "boolean"}})
    table, problems = read_all(source)
    offsets = [sum(len(line) + 1 for line in lines[:row]) for row in range(len(lines))]
    assert [(row["id"], row["text"]) for row in table.to_pylist()] == [
        (f"s:{name}@0", "one\u2028still one"),
        (f"s:{name}@{offsets[7]}", "\ufffd!"),
        (f"s:{name}@{offsets[8]}", "ab"),
        (f"s:{name}@{offsets[9]}", "caf\ufffd"),
        ("mine", "la\nst"),
        ("17", "number"),
    ]
    assert table.column("score").to_pylist()[-2:] == [2.0, None]
    assert table.column("n").to_pylist()[-2:] == [True, None]
    assert table.column("url").to_pylist()[-2:] == ["http://x", "\\udc00"]
    assert problems.dropped == {"not JSON": 2, "not a JSON object": 1, "no text": 2, "empty": 1}
    assert problems.repaired == {"lone surrogate": 1, "NUL": 1, "not UTF-8": 1}
    places = {problem.place: problem.rule for problem in problems.samples}
    assert places[f"s:{name}@{offsets[1]}"] == "not JSON"
    strict = source.model_copy(update={"bad_text": "drop"})
    assert texts(read_all(strict)[0]) == ["one\u2028still one", "la\nst", "number"]


def test_damage_can_stop_the_run(tmp_path: Path) -> None:
    source = write(tmp_path / "rows.jsonl", [b'{"text": "one"}', b'{"text": ""}', b"{", b'{"text": "two"}'])
    stop = source.model_copy(update={"on_damage": "stop"})
    with pytest.raises(DataError, match=r"s:rows\.jsonl@29: not JSON"):
        read_all(stop)


@pytest.mark.parametrize("compression", [".gz", ".zst", ".bz2", ".xz"])
def test_a_truncated_file_gives_the_rows_before_the_end(tmp_path: Path, compression: str) -> None:
    shuffler = random.Random(7)
    count = {".bz2": 14_000, ".xz": 3000}.get(compression, 8000)  # bzip2 works in blocks of 900 kB
    rows = [json.dumps({"text": f"{n} {shuffler.getrandbits(500)}"}).encode() for n in range(count)]
    path = tmp_path / f"rows.jsonl{compression}"
    source = write(path, rows)
    whole = texts(read_all(source)[0])
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    cut, problems = read_all(source)
    assert 0.1 * count < len(cut) < 0.9 * count
    assert texts(cut) == whole[: len(cut)]
    assert problems.dropped == {"truncated": 1}
    path.write_bytes(b"no such format")
    table, problems = read_all(source)
    assert len(table) == 0
    assert problems.dropped == {"damaged": 1}


def test_members_end_to_end(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(
        gzip.compress(b'{"text": "on') + gzip.compress(b'e"}\n') + gzip.compress(b'{"text": "two"}')
    )
    assert texts(read_all(FilesSource(files=str(tmp_path)))[0]) == ["one", "two"]


def test_a_line_of_a_hundred_megabytes_is_skipped_and_not_held(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    with path.open("wb") as file:
        file.write(b'{"text": "before"}\n{"text": "')
        for _ in range(100):
            file.write(b"x" * 1_000_000)
        file.write(b'"}\n{"text": "after"}\n')
    source = FilesSource(files=str(path), name="s", max_document_bytes=1_000_000)
    tracemalloc.start()
    table, problems = read_all(source)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert texts(table) == ["before", "after"]
    assert [(p.place, p.rule, p.bytes) for p in problems.samples] == [("s:rows.jsonl@19", "too long", 100_000_012)]
    assert peak < 20_000_000
    assert texts(read_all(source, split_bytes=10_000_000)[0]) == ["before", "after"]


@settings(max_examples=40)
@given(st.lists(st.integers(0, 60), max_size=30), st.lists(st.integers(1, 1500), max_size=6), st.booleans())
def test_ranges_give_every_line_once(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], edges: list[int], ended: bool
) -> None:
    lines = [bytes([97 + row % 26]) * length for row, length in enumerate(lengths)]
    content = b"\n".join(lines) + (b"\n" if ended else b"")
    path = tmp_path_factory.mktemp("lines") / "a"
    path.write_bytes(content)
    cuts = [0, *sorted({edge for edge in edges if edge < len(content)}), len(content)]
    found = []
    for start, end in pairwise(cuts):
        for offset, block in line_blocks(FilePiece(str(path), "s:a", "jsonl", 0, start, end), 1000, ReadProblems()):
            assert content[offset : offset + len(block)] == block
            found.append((offset, block))
    assert b"".join(block for _, block in sorted(found)) == content


def test_real_rows(shared_data: Path) -> None:
    expected = [row["text"] for row in read_rows(shared_data / "openstax/modules.jsonl.gz")]
    table, problems = read_all(FilesSource(files=str(shared_data / "openstax/*.gz")))
    assert texts(table) == [text.replace("\r\n", "\n").replace("\r", "\n") for text in expected]
    assert not problems.dropped
