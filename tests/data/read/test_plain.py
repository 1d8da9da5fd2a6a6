"""Files that are one document each, source trees, URLs, and the choice within a budget."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import random
import tarfile
import tempfile
import tracemalloc
import zipfile
from pathlib import Path

import fsspec
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from ingot.data.read.config import CodeSource, FilesSource, PythonSource
from ingot.data.read.find import format_of
from ingot.data.read.http import decode_page
from ingot.data.read.plain import passages
from ingot.data.read.plan import pieces_of, plan, select, splits
from ingot.data.read.problem import ReadProblems
from ingot.data.read.read import found_in
from ingot.data.read.split import FilePiece
from ingot.workspace.errors import DataError
from tests.data.read.reading import read_all, texts


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("a.warc.gz", "warc"), ("a.warc.wet.gz", "warc"), ("a.warc", "warc"), ("a.warc.wat.gz", None),
        ("a.html", "html"), ("a.HTM", "html"), ("a.jsonl.zst", "jsonl"), ("a.parquet", "parquet"), ("a.json", None),
        ("enwiki.xml.bz2", "mediawiki"), ("a.py", "text"), ("a.pyc", None), ("README", "text"), ("LICENSE", "text"),
        ("LICENSE-APACHE", "text"), ("COPYING.LESSER", "text"), ("license.png", None), ("a.rst", "text"), ("a.so", None),
    ],
)  # fmt: skip
def test_formats(name: str, form: str | None) -> None:
    assert format_of("somewhere/" + name) == form


def test_files_of_every_kind(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\rthree\n")
    (tmp_path / "deep/b.py").write_text("x = 1\n")
    (tmp_path / "c.html").write_bytes(b"<meta charset=latin1><p>caf\xe9")
    (tmp_path / "d.png").write_bytes(b"\x89PNG")
    (tmp_path / "empty.md").write_text(" \n")
    (tmp_path / "nothing.md").write_bytes(b"")
    (tmp_path / "long.txt").write_text("x" * 2000)
    (tmp_path / "long.html").write_text("x" * 2000)
    (tmp_path / "nul.txt").write_bytes(b"a\0b")
    (tmp_path / "bad.txt").write_bytes(b"caf\xe9 au lait")
    (tmp_path / "gone.txt").symlink_to(tmp_path / "nowhere")
    table, problems = read_all(FilesSource(files=str(tmp_path), name="s", max_document_bytes=1000))
    rows = {row["id"]: row for row in table.to_pylist()}
    assert {name: row["text"] for name, row in rows.items()} == {
        "s:a.txt": "one\ntwo\nthree\n",
        "s:bad.txt": "caf\ufffd au lait",
        "s:c.html": "<meta charset=latin1><p>café",
        "s:deep/b.py": "x = 1\n",
        "s:long.txt": "x" * 666,
        "s:long.txt#2": "x" * 666,
        "s:long.txt#3": "x" * 668,
        "s:nul.txt": "ab",
    }
    assert rows["s:deep/b.py"]["kind"] == "code"
    assert rows["s:c.html"]["mime"] == "text/html"
    assert problems.dropped == {"empty": 2, "too long": 1, "cannot be opened": 1}
    assert problems.repaired == {"NUL": 1, "not UTF-8": 1}


def test_a_long_text_is_cut_at_empty_lines(tmp_path: Path) -> None:
    verses = "\n\n".join(f"Verse {number}: " + "word " * 60 for number in range(40))
    (tmp_path / "poem.md").write_text(verses)
    (tmp_path / "short.txt").write_text("short")
    (tmp_path / "code.py").write_text("x = 1\n" * 300)
    (tmp_path / "packed.txt.gz").write_bytes(gzip.compress(("line\n" * 800).encode()))
    source = FilesSource(
        files=str(tmp_path), name="s", cut_at=1000, max_document_bytes=1500
    )  # of a piece, not of a file
    table, problems = read_all(source)
    rows = {row["id"]: row for row in table.to_pylist()}
    poem = [name for name in rows if name.startswith("s:poem.md")]
    assert poem == ["s:poem.md", *(f"s:poem.md#{number}" for number in range(2, len(poem) + 1))]
    assert "".join(rows[name]["text"] for name in poem) == verses
    assert all(rows[name]["text"].startswith("Verse ") for name in poem), "no verse is torn"
    assert rows["s:short.txt"]["text"] == "short" and "s:short.txt#2" not in rows
    assert rows["s:code.py#2"]["kind"] == "code" and rows["s:code.py#2"]["path"] == "code.py"
    assert "".join(row["text"] for name, row in rows.items() if "packed" in name) == "line\n" * 800
    assert not problems.dropped and not problems.repaired


@given(
    st.lists(st.sampled_from(["a", "é", "文", "🙂", " ", "\n", "\n\n", "\r\n", "word "]), max_size=400),
    st.integers(16, 60),
    st.integers(1, 50),
)
def test_passages_put_together_are_the_text(parts: list[str], size: int, chunk: int) -> None:
    """However the stream comes in chunks; no character is torn."""
    raw = "".join(parts).encode()
    found = list(passages((raw[start : start + chunk] for start in range(0, len(raw), chunk)), size, size * 3 // 2))
    assert b"".join(found) == raw
    assert all(piece.decode() for piece in found)
    assert all(len(piece) <= 1.5 * size for piece in found) and all(len(piece) >= size // 2 - 3 for piece in found[:-1])
    assert found == list(passages(iter([raw]), size, size * 3 // 2))


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_text_longer_than_a_document_may_be_is_read_in_pieces(tmp_path: Path, end: str) -> None:
    """Cut at ends of paragraphs, without a letter lost, and with no more of it in memory than a piece."""
    rows = [f"Paragraph {number}: {'wörds ' * (number % 90)}{end}the end.{end}{end}" for number in range(12_000)]
    raw = "".join(rows).encode()
    (tmp_path / "long.txt").write_bytes(raw)
    source = FilesSource(files=str(tmp_path), name="s", max_document_bytes=200_000)
    assert len(raw) > 3_000_000
    table, problems = read_all(source)
    assert table.column("id").to_pylist() == [f"s:long.txt{f'#{n}' if n > 1 else ''}" for n in range(1, len(table) + 1)]
    assert "".join(texts(table)) == raw.decode().replace("\r\n", "\n")
    assert all(text.startswith("Paragraph ") and text.endswith("the end.\n\n") for text in texts(table))
    assert all(len(text.encode()) <= source.max_document_bytes for text in texts(table))
    assert not problems.dropped and not problems.repaired
    (tmp_path / "long.txt").unlink()
    (tmp_path / "long.txt.gz").write_bytes(gzip.compress(raw, 1))
    [split] = splits(source)
    tracemalloc.start()
    documents = sum(1 for _ in found_in(split, source, ReadProblems()))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert documents == len(table) and peak < 2_000_000


def test_the_budget_cuts_a_long_text(tmp_path: Path) -> None:
    (tmp_path / "long.md").write_text("One line of it.\n\n" * 10_000)
    table, problems = read_all(FilesSource(files=str(tmp_path), cut_at=1000), max_bytes=20_000)
    assert 20_000 <= sum(map(len, texts(table))) < 21_000
    assert problems.dropped == {"budget": 1}


@given(
    st.lists(st.sampled_from(["a", "é", "文", " ", "\n", "\n\n", "\r\n", "\r", "word " * 3]), min_size=1, max_size=99),
    st.integers(8, 40),
)
def test_documents_put_together_are_the_text(parts: list[str], longest: int) -> None:
    """Line ends that are two bytes included; a piece of white space alone is counted, not kept."""
    raw = "".join(parts).encode()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "a.txt").write_bytes(raw)
        table, problems = read_all(FilesSource(files=folder, max_document_bytes=longest))
    lost = "".join(each.text for each in problems.samples)
    whole = raw.decode().replace("\r\n", "\n").replace("\r", "\n")
    assert set(problems.dropped) <= {"empty"} and not lost.strip()
    if not problems.dropped:
        assert "".join(texts(table)) == whole
    assert "".join("".join(texts(table)).split()) == "".join(whole.split())


def test_passages_of_bytes_that_are_no_text() -> None:
    assert [len(piece) for piece in passages(iter([b"\x80" * 100]), 30, 45)] == [30, 30, 40]


def test_explicit_format(tmp_path: Path) -> None:
    (tmp_path / "rows.json").write_text('{"text": "one"}\n{"text": "two"}\n')
    assert texts(read_all(FilesSource(files=str(tmp_path / "rows.json"), format="jsonl"))[0]) == ["one", "two"]
    assert texts(read_all(FilesSource(files=str(tmp_path / "*.json"), format="text"))[0]) == [
        '{"text": "one"}\n{"text": "two"}\n'
    ]


def test_patterns(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    for name in ("a.txt", "deep/c.md", "e.png"):
        (tmp_path / name).write_text("x")
    for pattern in (str(tmp_path), f"{tmp_path}/**/*", f"{tmp_path}/"):
        assert read_all(FilesSource(files=pattern, name="s"))[0].column("id").to_pylist() == ["s:a.txt", "s:deep/c.md"]
    both = FilesSource(files=[f"{tmp_path}/a.txt", f"{tmp_path}/a.*"], name="s")
    assert read_all(both)[0].column("id").to_pylist() == ["s:a.txt"]
    with pytest.raises(DataError, match=r"sources: s: nothing matches .*none\.txt(.|\n)*fix: check the path"):
        read_all(FilesSource(files=f"{tmp_path}/none.txt", name="s"))
    with pytest.raises(DataError, match=r"no file that can be read(.|\n)*fix: give files that end in \.warc"):
        read_all(FilesSource(files=f"{tmp_path}/*.png"))
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.txt").write_text("x")
    with pytest.raises(DataError, match="two patterns find different files with the same relative path"):
        read_all(FilesSource(files=[f"{tmp_path}/one/*", f"{tmp_path}/two/*"]))


def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/caf\xe9.txt"
    try:
        with open(path, "w") as file:  # noqa: PTH123 (a Path cannot hold these bytes)
            file.write("x")
    except OSError:
        pytest.skip("this file system takes only UTF-8 names")
    table, _ = read_all(FilesSource(files=str(tmp_path), name="s"))
    assert (table.column("id").to_pylist(), texts(table)) == ([r"s:caf\udce9.txt"], ["x"])


def test_urls() -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe({"/in/a.jsonl": b'{"text": "one"}\n', "/in/deep/b.txt": b"two", "/in/c.warc": b""})
    try:
        table, _ = read_all(FilesSource(files="memory://in/**", name="s"))
        assert texts(table) == ["one", "two"]
        assert table.column("id").to_pylist() == ["s:a.jsonl@0", "s:deep/b.txt"]
        before = splits(FilesSource(files="memory://in/a.jsonl"))[0].key
        memory.pipe("/in/a.jsonl", b'{"text": "other"}\n')
        assert splits(FilesSource(files="memory://in/a.jsonl"))[0].key != before
    finally:
        memory.rm("/in", recursive=True)


def test_source_trees(tmp_path: Path) -> None:
    tree = {
        "src/a.c": b"int x;\n",
        "src/b.bin": b"\x7fELF\0\0",
        "README": b"read",
        ".git/config": b"[core]",
        "x.rs": b"y" * 99,
    }
    for name, content in tree.items():
        (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tree" / name).write_bytes(content)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for name, content in tree.items():
            archive.writestr(name, content)
    for suffix in ("gz", "bz2", "xz"):
        with tarfile.open(tmp_path / f"a.tar.{suffix}", f"w:{suffix}") as packed:  # type: ignore[call-overload]
            packed.add(tmp_path / "tree", "")
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as packed:
        packed.add(tmp_path / "tree", "")
    (tmp_path / "a.tar.zst").write_bytes(zstandard.compress(plain.getvalue()))
    for name in ("tree", "a.zip", "a.tar.gz", "a.tar.bz2", "a.tar.xz", "a.tar.zst"):
        table, problems = read_all(CodeSource(code=str(tmp_path / name), name="s", max_document_bytes=50))
        assert dict(zip(table.column("path").to_pylist(), texts(table), strict=True)) == {
            "README": "read",
            "src/a.c": "int x;\n",
        }
        assert problems.dropped == {"binary": 1, "too long": 1}
    assert "s:a.tar.zst!src/a.c" in table.column("id").to_pylist()
    cut = (tmp_path / "a.tar.gz").read_bytes()
    (tmp_path / "a.tar.gz").write_bytes(cut[: len(cut) // 2])
    assert read_all(CodeSource(code=str(tmp_path / "a.tar.gz")))[1].dropped["damaged"] == 1
    (tmp_path / "a.zip").write_bytes(b"PK nothing")
    assert read_all(CodeSource(code=str(tmp_path / "a.zip")))[1].dropped == {"damaged": 1}


@pytest.mark.parametrize(
    ("raw", "header", "text", "charset"),
    [
        (b"caf\xc3\xa9", "", "café", "utf-8"),
        (b"caf\xe9 \x93x\x94", "", "café “x”", "cp1252"),
        (b"caf\xe9", "ISO-8859-1", "café", "cp1252"),
        (b"caf\xc3\xa9", "iso-8859-1", "cafÃ©", "cp1252"),  # as browsers do: `fix_text` repairs it
        ("привет".encode("koi8-r"), "koi8-r", "привет", "koi8-r"),
        ("中文".encode("gbk"), "gb2312", "中文", "gb18030"),
        (b"\xef\xbb\xbfx", "utf-16", "x", "utf-8"),
        (b"\xff\xfex\0", "", "x", "utf-16-le"),
        (b'<meta http-equiv="Content-Type" content="text/html; charset=windows-1251">\xcf', "", "П", "cp1251"),
        (b"plain", "no-such-charset", "plain", "utf-8"),
        ("日本".encode(), "euc-jp", "日本", "utf-8"),  # the label is wrong, and the bytes say so
    ],
)
def test_charsets(raw: bytes, header: str, text: str, charset: str) -> None:
    page = decode_page(raw, header)
    assert page.text.endswith(text)
    assert (page.charset, page.damaged) == (charset, False)


def test_the_installed_distribution() -> None:
    pieces = pieces_of(PythonSource(code_share=0.25), 10**9)
    by_id = {piece.identity: piece for piece in pieces}
    assert len(by_id) == len(pieces)
    assert by_id["python:stdlib/json/decoder.py"].docstrings
    assert any(name.startswith("python:site-packages/numpy/") for name in by_id)
    assert not any("/ingot/" in name or "__pycache__" in name for name in by_id)
    python = [piece for piece in pieces if piece.format == "python"]
    assert abs(sum(piece.whole for piece in python) / len(python) - 0.25) < 4 * (0.25 * 0.75 / len(python)) ** 0.5
    table, _ = read_all(PythonSource(), max_bytes=300_000)
    assert set(table.column("source").to_pylist()) <= {
        f"python-{part}" for part in ("text", "metadata", "docstrings", "code")
    }


def test_python_files(tmp_path: Path) -> None:
    from ingot.data.read.document import Document
    from ingot.data.read.problem import ReadProblems
    from ingot.data.read.python import read_python

    def read(content: bytes) -> tuple[list[Document], ReadProblems]:
        (tmp_path / "a.py").write_bytes(content)
        problems = ReadProblems()
        piece = FilePiece(str(tmp_path / "a.py"), "s:a.py", "python", len(content), docstrings=True, whole=True)
        return list(read_python(piece, PythonSource(name="s"), problems)), problems

    (code, prose), _ = read(b'"""Prose."""\nx = 1\n')
    assert (code.id, code.fields["source"], code.fields["kind"]) == ("s:a.py", "s-code", "code")
    assert (prose.id, prose.text, prose.fields["kind"]) == ("s:a.py#docstrings-1", "Prose.", "prose")
    for escape, rule in ((b"\\ud800", "lone surrogate"), (b"\\0", "NUL")):
        found, problems = read(b'"""Text ' + escape + b'"""\n')
        assert [document.fields["kind"] for document in found] == ["code"]
        assert problems.dropped == {rule: 1}
    found, problems = read(b'"""Text."""\nprint "old"\n')
    assert [document.fields["kind"] for document in found] == ["code"]
    assert problems.dropped == {"not parsable as Python": 1}


def some_pieces(count: int = 60) -> list[FilePiece]:
    return [FilePiece(f"/x/{n}", f"s:{n:03d}", ["text", "python", "metadata"][n % 3], 100 + n) for n in range(count)]


@given(st.integers(0, 10_000), st.integers(0, 10_000), st.randoms())
def test_the_choice_is_a_prefix_that_no_order_changes(budget: int, more: int, shuffler: random.Random) -> None:
    pieces = some_pieces()
    taken = select(pieces, budget)
    shuffled = list(pieces)
    shuffler.shuffle(shuffled)
    assert set(select(shuffled, budget)) == set(taken)
    assert set(taken) <= set(select(pieces, budget + more))
    assert sum(piece.size for piece in taken) < budget + 320  # only the last one of each half may go over
    prose = [piece for piece in pieces if piece.format != "python"]
    code = [piece for piece in pieces if piece.format == "python"]
    both = sum(piece.size for piece in pieces)
    assert set(select(pieces, both)) == set(pieces), "what one half leaves over goes to the other"
    chosen = set(select(pieces, 2000))
    assert 1000 <= sum(piece.size for piece in chosen & set(prose)) < 1160
    assert 1000 <= sum(piece.size for piece in chosen & set(code)) < 1160


def test_rows_stop_at_the_budget(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "xxxxxxxxxx"}\n' * 10)
    table, problems = read_all(FilesSource(files=str(tmp_path)), max_bytes=35)
    assert len(table) == 4
    assert problems.dropped == {"budget": 1}
    found = plan(FilesSource(files=str(tmp_path)), 35)
    assert (found.files, found.bytes, found.bytes_taken, found.files_left_out) == (1, 230, 35, 0)


def test_keys_name_the_content(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one")
    source = FilesSource(files=str(tmp_path), name="s")
    (first,) = splits(source)
    assert pickle.loads(pickle.dumps(first)) == first
    os.utime(tmp_path / "a.txt", (1, 1))
    assert splits(source) == [first]
    (tmp_path / "a.txt").write_text("two")
    assert splits(source)[0].key != first.key
