"""Reading and extraction: WARC, JSONL and Parquet files of the corpus, main content of real pages, repair of texts.

Read rates are megabytes of text that came out; extraction counts megabytes of HTML that went in. The pages are those of
the article extraction benchmark beside the repository (../shared/data); without them, the corpus wrapped in tags.
"""

from __future__ import annotations

import gzip
import json
import tempfile
import unicodedata
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

from benchmarks.curation.measure import compare, note, rate, row
from ingot.data.read.config import FilesSource
from ingot.data.read.plan import splits
from ingot.data.read.problem import ReadProblems
from ingot.data.read.read import read_split
from ingot.data.steps.extract_html import ExtractHtmlStep
from ingot.data.steps.fix_text import FixTextStep
from ingot.data.steps.normalise import NormaliseStep

GOAL = 25.0
PAGES = Path(__file__).parents[3] / "shared/data/article_extraction_benchmark/pages_dev.jsonl.gz"


def read_everything(source: FilesSource) -> int:
    """Read a source and give the number of documents."""
    problems = ReadProblems()
    return sum(len(table) for split in splits(source) for table in read_split(split, source, problems))


def write_corpus(folder: Path, texts: list[str]) -> None:
    """The same texts in each format."""
    for name in ("jsonl", "parquet", "warc"):
        (folder / name).mkdir()
    lines = "".join(json.dumps({"id": str(number), "text": text}) + "\n" for number, text in enumerate(texts))
    (folder / "jsonl/a.jsonl").write_text(lines)
    table = pyarrow.table({"id": [str(number) for number in range(len(texts))], "text": texts})
    pyarrow.parquet.write_table(table, folder / "parquet/a.parquet", row_group_size=1000, compression="zstd")
    with (folder / "warc/a.warc.gz").open("wb") as file:
        for number, text in enumerate(texts):
            payload = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n" + text.encode()
            head = f"WARC/1.0\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:uuid:{number}>\r\n"
            head += "WARC-Identified-Payload-Type: text/html\r\nWARC-Target-URI: http://x\r\nWARC-Date: 2026-01-01T00:00:00Z\r\n"
            head += f"Content-Length: {len(payload)}\r\n\r\n"
            file.write(gzip.compress(head.encode() + payload + b"\r\n\r\n", 6))


def readers(folder: Path, size: int, count: int, rounds: int) -> list[dict[str, Any]]:
    """One row a format, beside fastwarc alone and datatrove's readers on the same file."""
    rows = []
    peers: dict[str, Callable[[str], int]] = {}
    try:
        from datatrove.pipeline.readers import JsonlReader, ParquetReader
        from fastwarc.warc import ArchiveIterator, WarcRecordType

        def warc_reader(path: str) -> int:
            records = ArchiveIterator(str(Path(path) / "a.warc.gz"), record_types=WarcRecordType.response)
            return sum(1 for record in records if record.reader.read().decode())

        peers = {
            "jsonl": lambda path: sum(1 for _ in JsonlReader(path).run()),
            "parquet": lambda path: sum(1 for _ in ParquetReader(path).run()),
            "warc": warc_reader,
        }
    except ImportError as error:
        note(f"the peers are left out: {error}")
    for name in ("warc", "jsonl", "parquet"):
        source = FilesSource(files=str(folder / name), max_document_bytes=100_000_000)
        if read_everything(source) != count:
            raise AssertionError(f"{name}: documents were lost")
        ours = partial(read_everything, source)
        peer_name = "fastwarc" if name == "warc" else "datatrove"
        try:
            both = compare(ours, partial(peers[name], str(folder / name)), size, rounds)
            rows.append(row(f"read {name}", *both, peer_name=peer_name))
        except (ImportError, KeyError) as error:  # datatrove's JSONL reader needs orjson
            note(f"the peer of {name} is left out: {error}")
            rows.append(row(f"read {name}", rate(ours, size, rounds)))
    return rows


def pages_of(texts: list[str], quick: bool) -> list[str]:
    """Real pages, or texts wrapped in tags."""
    if PAGES.exists():
        with gzip.open(PAGES, "rt", encoding="utf-8", newline="\n") as lines:
            return [json.loads(line)["html"] for line in lines][: 20 if quick else None]
    note("no real pages: texts of the corpus wrapped in tags")
    return [f"<html><body><p>{text.replace(chr(10) * 2, '</p><p>')}</p></body></html>" for text in texts[:100]]


def extraction(pages: list[str], rounds: int) -> list[dict[str, Any]]:
    """Each method, beside the library that comes closest to what it does."""
    size = sum(len(page.encode()) for page in pages)
    documents = pyarrow.table({"text": pyarrow.array(pages, pyarrow.large_string())})
    peers: dict[str, Callable[[], Any]] = {}
    try:
        from resiliparse.extract.html2text import extract_plain_text

        same: dict[str, Any] = {"main_content": True, "links": False, "alt_texts": False, "comments": False}
        peers["resiliparse"] = lambda: [extract_plain_text(page, **same) for page in pages]
        import trafilatura

        fastest: dict[str, Any] = {"fast": True, "include_comments": False}  # without its two fallbacks
        peers["trafilatura, fast"] = lambda: [trafilatura.extract(page, **fastest) for page in pages]
    except ImportError as error:
        note(f"a peer is left out: {error}")
    rows = []
    methods: tuple[tuple[Any, tuple[str, ...]], ...] = (
        ("best", ("resiliparse", "trafilatura, fast")),
        ("fast", ("resiliparse",)),
    )
    for method, names in methods:
        ours = partial(ExtractHtmlStep(method=method).annotate, documents)
        for name in (name for name in names if name in peers):
            both = compare(ours, peers[name], size, rounds)
            rows.append(row(f"extract_html {method}", *both, peer_name=name, goal=GOAL))
    return rows


def measure(corpus: pyarrow.Table, quick: bool) -> list[dict[str, Any]]:
    """See benchmarks/data.py."""
    texts = [text for text in corpus.column("text").to_pylist() if text.strip()]
    size = sum(len(text.encode()) for text in texts)
    rounds = 1 if quick else 3
    with tempfile.TemporaryDirectory() as folder:
        write_corpus(Path(folder), texts)
        rows = readers(Path(folder), size, len(texts), rounds)
    rows += extraction(pages_of(texts, quick), rounds)
    fix, normalise = FixTextStep(), NormaliseStep()
    fix.annotate(corpus.slice(0, 1))  # compile
    rows.append(row("fix_text", rate(lambda: fix.annotate(corpus), size, rounds)))
    both = compare(
        lambda: normalise.annotate(corpus), lambda: [unicodedata.normalize("NFC", text) for text in texts], size, rounds
    )
    rows.append(row("normalise", *both, peer_name="unicodedata, on strings"))
    return rows
