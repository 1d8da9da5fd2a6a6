"""Every kind of broken input in one folder: each is named and counted, and not one good document beside it is lost."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from pathlib import Path
from typing import Any

import pytest

from ingot.data.config import CurateConfig
from ingot.data.curate import run as run_stage
from ingot.workspace.errors import DataError
from ingot.workspace.files import read_json

from .dirty import article
from .test_curate import documents_of, problems_of, stage_at

GOOD = 20  # good documents in every file


def jsonl(name: str, count: int = GOOD) -> list[bytes]:
    rows = [{"id": f"{name}-{n}", "text": article(hash_of(name) + n)} for n in range(count)]
    return [json.dumps(row).encode() + b"\n" for row in rows]


def half_of_a_gzip_file() -> bytes:
    whole = gzip.compress(b"".join(jsonl("gzip", 200)), mtime=0)
    return whole[: len(whole) // 2]


def ids_that_can_be_read(cut: bytes) -> set[str]:
    """What zlib itself gets out of it, up to the last whole line."""
    lines = zlib.decompressobj(wbits=31).decompress(cut).split(b"\n")[:-1]
    return {json.loads(line)["id"] for line in lines}


def hash_of(name: str) -> int:
    return sum(map(ord, name)) * 1000


def warc_record(number: int) -> bytes:
    body = f"<html><body><p>{article(5_000_000 + number)}</p></body></html>".encode()
    http = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n" + body
    head = (
        f"WARC/1.0\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:uuid:{number:032x}>\r\n"
        f"WARC-Target-URI: http://example.org/{number}\r\nWARC-Date: 2024-01-01T00:00:00Z\r\n"
        f"Content-Type: application/http; msgtype=response\r\nContent-Length: {len(http)}\r\n\r\n"
    )
    return head.encode() + http + b"\r\n\r\n"


def write_corruption(folder: Path) -> None:
    folder.mkdir()
    (folder / "gzip.jsonl.gz").write_bytes(half_of_a_gzip_file())
    rows = jsonl("utf8")
    rows.insert(3, b'{"id": "bad-utf8", "text": "caf\xe9 ' + article(77).encode() + b'"}\n')
    (folder / "utf8.jsonl").write_bytes(b"".join(rows))
    rows = jsonl("nul")
    rows.insert(7, json.dumps({"id": "nul", "text": "a\0b " + article(78)}).encode() + b"\n")
    rows.insert(9, b"\0" * 1000 + b"\n")
    (folder / "nul.jsonl").write_bytes(b"".join(rows))
    rows = jsonl("line")
    with (folder / "line.jsonl").open("wb") as file:
        file.writelines(rows[:10])
        file.write(b'{"id": "long", "text": "' + b"x" * 100_000_000 + b'"}\n')
        file.writelines(rows[10:])
    records = [gzip.compress(warc_record(number), mtime=0) for number in range(GOOD)]
    records.insert(5, records[4][: len(records[4]) // 2])  # a record that ends in its middle
    records.insert(9, b"this is no record at all\n")
    (folder / "crawl.warc.gz").write_bytes(b"".join(records))
    (folder / "twice.jsonl").write_bytes(b"".join([*jsonl("twice"), jsonl("twice")[3], jsonl("twice")[3]]))
    (folder / "broken.parquet").write_bytes(b"PAR1 and nothing that follows")


def config_for(folder: Path, **source: Any) -> CurateConfig:
    sources: list[Any] = [{"files": str(folder), **source}]
    steps: list[Any] = [{"step": "split"}]
    return CurateConfig(sources=sources, steps=steps, on_duplicate_id="rename", workers=1)


def test_every_kind_of_damage_in_one_run(tmp_path: Path) -> None:
    write_corruption(tmp_path / "in")
    folder = stage_at(tmp_path / "run" / "stage")
    run_stage(config_for(tmp_path / "in"), {}, folder)
    ids = {row["id"] for row in documents_of(folder)}
    for name in ("utf8", "nul", "line", "twice"):
        assert {f"{name}-{n}" for n in range(GOOD)} <= ids, name
    assert {"bad-utf8", "nul"} <= ids  # repaired
    assert "long" not in ids
    assert {"twice-3~2", "twice-3~3"} <= ids
    readable = ids_that_can_be_read(half_of_a_gzip_file())
    assert {name for name in ids if name.startswith("gzip-")} == readable
    assert 80 < len(readable) < 120
    crawled = [row for row in documents_of(folder) if "crawl.warc" in str(row["path"]) or row["url"]]
    assert {row["url"] for row in crawled} >= {f"http://example.org/{n}" for n in range(GOOD)}
    texts = {row["id"]: row["text"] for row in documents_of(folder)}
    assert texts["bad-utf8"] == "caf\ufffd " + article(77)
    assert texts["nul"] == "ab " + article(78)

    problems = {(re.split("[:@#]", row["place"])[1], row["kept"]) for row in problems_of(folder)}
    names = {"gzip.jsonl.gz", "nul.jsonl", "line.jsonl", "crawl.warc.gz", "broken.parquet"}
    assert {(name, False) for name in names} | {("utf8.jsonl", True), ("nul.jsonl", True)} <= problems
    [row] = [row for row in read_json(folder.path / "documents" / "funnel.json") if row["step"] == "read"]
    assert sum(row["reasons"].values()) >= 6
    assert sum(row["repaired"].values()) >= 2


def test_by_policy_the_run_stops_and_names_the_place(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "gzip.jsonl.gz").write_bytes(half_of_a_gzip_file())
    with pytest.raises(DataError, match=r"gzip\.jsonl\.gz(.|\n)*on_damage: continue"):
        run_stage(config_for(tmp_path / "in", on_damage="stop"), {}, stage_at(tmp_path / "run" / "stage"))
