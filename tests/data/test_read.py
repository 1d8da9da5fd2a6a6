"""Files to documents: good ones, and every way a file can be broken."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from ingot.data.read import Reading, read_file, read_rows
from ingot.data.sources import RawFile, Role
from ingot.workspace.errors import DataError

PLENTY = 10**9


def raw_file(path: Path, role: Role, *, docstrings: bool = True, code: bool = True) -> RawFile:
    size = path.stat().st_size if path.exists() else 0
    return RawFile(str(path), f"s:{path.name}", size, role, "s", docstrings, code)


def read_text(tmp_path: Path, content: bytes, role: Role = "text") -> Reading:
    path = tmp_path / "file"
    path.write_bytes(content)
    return read_file(raw_file(path, role))


def problems(reading: Reading) -> list[str]:
    return [f"{problem.id} {problem.rule} {problem.detail}".strip() for problem in reading.problems]


def test_text_is_read_with_plain_line_ends(tmp_path: Path) -> None:
    (document,) = read_text(tmp_path, b"\xef\xbb\xbfone\r\ntwo\rthree\n").documents
    assert (document.text, document.source, document.kind, document.id) == ("one\ntwo\nthree\n", "s-text", "", "s:file")


def test_python_gives_code_and_prose(tmp_path: Path) -> None:
    code, prose = read_text(tmp_path, b'"""Prose."""\nx = 1\n', "python").documents
    assert (code.id, code.source, code.kind) == ("s:file", "s-code", "code")
    assert (prose.id, prose.source, prose.kind, prose.text) == (
        "s:file#docstrings-1",
        "s-docstrings",
        "prose",
        "Prose.",
    )


def test_escapes_in_docstrings_cannot_break_the_output(tmp_path: Path) -> None:
    for escape, problem in ((b"\\ud800", "lone surrogate at character 5"), (b"\\0", "NUL byte at character 5")):
        reading = read_text(tmp_path, b'"""Text ' + escape + b'"""\n', "python")
        assert [document.kind for document in reading.documents] == ["code"]
        assert problems(reading) == [f"s:file {problem}"]


def test_python_that_does_not_parse_is_still_code(tmp_path: Path) -> None:
    reading = read_text(tmp_path, b'"""Text."""\nprint "old"\n', "python")
    assert [document.kind for document in reading.documents] == ["code"]
    assert problems(reading)[0].startswith("s:file not parsable as Python (Missing parentheses")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "s:file empty"),
        (b" \n\t\n", "s:file empty"),
        (b"abc\0def", "s:file NUL byte at offset 3"),
        (b"caf\xe9 au lait", "s:file not UTF-8 at offset 3"),
    ],
)
def test_broken_text(tmp_path: Path, content: bytes, problem: str) -> None:
    reading = read_text(tmp_path, content)
    assert (reading.documents, problems(reading)) == ([], [problem])
    assert "\0" not in reading.problems[0].text


def test_metadata_without_description(tmp_path: Path) -> None:
    assert problems(read_text(tmp_path, b"Name: x\n", "metadata")) == [
        "s:file no description in the package's metadata"
    ]


def test_missing_file_and_folder(tmp_path: Path) -> None:
    gone = read_file(raw_file(tmp_path / "gone", "text"))
    assert problems(gone) == ["s:gone cannot be opened (No such file or directory)"]
    assert problems(read_file(RawFile(str(tmp_path), "s:folder", 0, "text", "s"))) == [
        "s:folder cannot be opened (Is a directory)"
    ]


def write_lines(path: Path, lines: list[bytes]) -> RawFile:
    content = b"\n".join(lines) + b"\n"
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return raw_file(path, "rows")


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.jsonl.gz"])
def test_jsonl_with_broken_rows(tmp_path: Path, name: str) -> None:
    file = write_lines(
        tmp_path / name,
        [
            json.dumps({"text": "one\u2028still one"}, ensure_ascii=False).encode(),  # splitlines would cut this row
            b"{not json",
            b"",
            b"[1, 2]",
            b'{"other": "x"}',
            b'{"text": 3}',
            b'{"text": "  "}',
            b'{"text": "\\ud800"}',
            b'{"text": "a\\u0000b"}',
            b'{"text": "caf\xe9"}',
            b'{"text": "last"}',
        ],
    )
    reading = read_rows(file, "text", PLENTY)
    assert [(d.id, d.text, d.source) for d in reading.documents] == [
        (f"s:{name}:1", "one\u2028still one", "s"),
        (f"s:{name}:11", "last", "s"),
    ]
    rules = [(p.id.removeprefix(f"s:{name}:"), p.rule) for p in reading.problems]
    assert rules == [
        ("2", "not JSON"), ("4", "not a JSON object"), ("5", "no text"), ("6", "no text"), ("7", "empty"),
        ("8", "lone surrogate"), ("9", "NUL byte"), ("10", "not JSON"),
    ]  # fmt: skip
    assert all(json.dumps(p.text).isascii() and p.text.encode() is not None for p in reading.problems)


def test_damaged_gzip_keeps_its_good_rows(tmp_path: Path) -> None:
    path = tmp_path / "cut.jsonl.gz"
    rows = b"".join(json.dumps({"text": f"{n} {hash(str(n))}"}).encode() + b"\n" for n in range(20_000))
    whole = gzip.compress(rows)
    path.write_bytes(whole[: len(whole) // 2])
    reading = read_rows(raw_file(path, "rows"), "text", PLENTY)
    assert 1000 < len(reading.documents) < 19_000
    assert reading.problems[-1].rule == "damaged"
    path.write_bytes(b"no gzip at all")
    assert problems(read_rows(raw_file(path, "rows"), "text", PLENTY))[0].startswith(
        "s:cut.jsonl.gz cannot be read after row 0"
    )


def test_parquet(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"body": ["one", None, "three"], "n": [1, 2, 3]}), path)
    reading = read_rows(raw_file(path, "rows"), "body", PLENTY)
    assert [(d.id, d.text) for d in reading.documents] == [("s:rows.parquet:1", "one"), ("s:rows.parquet:3", "three")]
    assert problems(reading) == ["s:rows.parquet:2 no text in column 'body'"]
    path.write_bytes(b"PAR1 but not really PAR1")
    broken = read_rows(raw_file(path, "rows"), "body", PLENTY)
    assert [problem.rule for problem in broken.problems] == ["damaged"]


def test_wrong_column_is_an_error(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "rows.jsonl", [b'{"body": "x"}', b'{"body": "y"}'])
    with pytest.raises(DataError, match=r"rows\.jsonl: no row has text in the column 'text'\n  fix: name the column"):
        read_rows(file, "text", PLENTY)


def test_rows_stop_at_the_budget(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "rows.jsonl", [json.dumps({"text": "x" * 10}).encode()] * 10)
    reading = read_rows(file, "text", 35)
    assert len(reading.documents) == 4
    assert problems(reading) == ["s:rows.jsonl:5 budget used up: rows from here left out"]
