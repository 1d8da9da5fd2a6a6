"""Parquet, Arrow and data sets: rows as pyarrow and the `datasets` library give them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from ingot.data.read.config import DatasetSource, FilesSource
from ingot.data.read.plan import plan
from ingot.workspace.errors import DataError
from tests.data.read.reading import read_all, texts
from tests.making.rows import write_rows


def some_rows(count: int) -> pyarrow.Table:
    return pyarrow.table(
        {
            "body": [f"text {number} " + "x" * (number % 500) for number in range(count)],
            "id": [f"id-{number}" for number in range(count)],
            "score": [number / 7 for number in range(count)],
            "url": [None if number % 3 else f"http://x/{number}" for number in range(count)],
            "ignored": [[number] for number in range(count)],
        }
    )


def test_rows_and_row_groups(tmp_path: Path) -> None:
    rows = some_rows(5000)
    pyarrow.parquet.write_table(rows, tmp_path / "a.parquet", row_group_size=300)
    source = FilesSource(files=str(tmp_path), text="body", keep={"score": "number"})
    table, problems = read_all(source)
    for ours, name in (("text", "body"), ("id", "id"), ("score", "score"), ("url", "url")):
        assert table.column(ours).to_pylist() == rows.column(name).to_pylist()
    assert not problems.dropped
    splits = plan(source, None, 200_000).splits
    assert len(splits) > 4
    assert sum(piece.end - piece.start for split in splits for piece in split.pieces) == 17
    assert read_all(source, split_bytes=200_000)[0].combine_chunks() == table.combine_chunks()
    without = FilesSource(files=str(tmp_path), text="body", id="none", name="s")
    assert read_all(without, split_bytes=200_000)[0].column("id").to_pylist() == [
        f"s:a.parquet:{n}" for n in range(5000)
    ]


def test_rows_that_need_a_look(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    bad = pyarrow.Array.from_buffers(  # Arrow stores what is no UTF-8 without complaint
        pyarrow.string(),
        2,
        [None, pyarrow.array([0, 4, 7], pyarrow.int32()).buffers()[1], pyarrow.py_buffer(b"caf\xe9abc")],
    )
    good = pyarrow.array(["one", None, "", " \n", "a\0b", "a\r\nb", "x" * 2000])
    table = pyarrow.table({"text": pyarrow.concat_arrays([good, bad]), "id": pyarrow.array([*range(7), None, 8])})
    pyarrow.parquet.write_table(table, path)
    found, problems = read_all(FilesSource(files=str(path), name="s", max_document_bytes=1000))
    assert [(row["id"], row["text"]) for row in found.to_pylist()] == [
        ("0", "one"), ("4", "ab"), ("5", "a\nb"), ("s:a.parquet:7", "caf\ufffd"), ("8", "abc"),
    ]  # fmt: skip
    assert problems.dropped == {"no text": 1, "empty": 2, "too long": 1}
    assert problems.repaired == {"NUL": 1, "not UTF-8": 1}


def test_damaged_files(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(b"PAR1 but not really PAR1")
    table, problems = read_all(FilesSource(files=str(path)))
    assert len(table) == 0
    assert problems.dropped == {"damaged": 1}
    rows = some_rows(3000)
    pyarrow.parquet.write_table(rows, path, row_group_size=1000, compression="zstd", write_page_checksum=True)
    content = bytearray(path.read_bytes())
    second = pyarrow.parquet.ParquetFile(path).metadata.row_group(1)
    start = second.column(0).dictionary_page_offset or second.column(0).data_page_offset
    content[start + 40 : start + 400] = b"\xff" * 360
    path.write_bytes(content)
    table, problems = read_all(FilesSource(files=str(path), text="body"))
    expected = rows.column("body").to_pylist()
    assert texts(table) == expected[:1000] + expected[2000:]
    assert problems.dropped == {"damaged": 1}


def test_wrong_column_is_an_error(tmp_path: Path) -> None:
    pyarrow.parquet.write_table(some_rows(3), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"no column 'text' \(there are: body, id(.|\n)*fix: name the column"):
        read_all(FilesSource(files=str(tmp_path)))


def test_arrow_files(tmp_path: Path) -> None:
    rows = some_rows(1000)
    with pyarrow.OSFile(str(tmp_path / "a.arrow"), "wb") as sink, pyarrow.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=100)
    with pyarrow.OSFile(str(tmp_path / "b.arrow"), "wb") as sink, pyarrow.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=100)
    table, _ = read_all(FilesSource(files=str(tmp_path), text="body"))
    assert texts(table) == 2 * rows.column("body").to_pylist()
    (tmp_path / "b.arrow").write_bytes((tmp_path / "b.arrow").read_bytes()[:-50_000])
    table, problems = read_all(FilesSource(files=str(tmp_path), text="body"))
    assert texts(table) == rows.column("body").to_pylist() + rows.column("body").to_pylist()[: len(table) - 1000]
    assert 1000 < len(table) < 2000
    assert problems.dropped == {"damaged": 1}


@pytest.fixture(scope="module")
def datasets() -> Any:
    return pytest.importorskip("datasets")


def test_saved_data_sets(tmp_path: Path, datasets: Any) -> None:
    rows = some_rows(500)
    data = datasets.Dataset(rows).select(range(100, 400)).filter(lambda row: row["score"] > 20)
    data.save_to_disk(tmp_path / "one", num_shards=3)
    data.train_test_split(0.5, seed=1).save_to_disk(tmp_path / "two")
    one, _ = read_all(DatasetSource(dataset=str(tmp_path / "one"), text="body"))
    assert texts(one) == data["body"][:]
    assert len(one) == 259
    for split in ("train", "test"):
        found, _ = read_all(DatasetSource(dataset=str(tmp_path / "two"), text="body", split=split))
        assert texts(found) == datasets.load_from_disk(tmp_path / "two")[split]["body"][:]
    with pytest.raises(DataError, match=r"no split 'validation'(.|\n)*fix: give `split`: train or test"):
        read_all(DatasetSource(dataset=str(tmp_path / "two"), text="body", split="validation"))


def test_a_folder_as_on_the_hub(tmp_path: Path) -> None:
    rows = some_rows(100)
    (tmp_path / "data").mkdir()
    pyarrow.parquet.write_table(rows.slice(0, 60), tmp_path / "data/train-00000-of-00002.parquet")
    pyarrow.parquet.write_table(rows.slice(60, 30), tmp_path / "data/train-00001-of-00002.parquet")
    pyarrow.parquet.write_table(rows.slice(90, 10), tmp_path / "data/test-00000-of-00001.parquet")
    found, _ = read_all(DatasetSource(dataset=str(tmp_path), text="body"))
    assert texts(found) == rows.column("body").to_pylist()[:90]


def test_a_name_on_the_hub(tmp_path: Path, datasets: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """`load_dataset` with a local builder stands for the network: the files of its cache are read."""
    write_rows(tmp_path / "rows.jsonl", ({"text": f"row {n}"} for n in range(50)))
    original = datasets.load_dataset

    def from_here(name: str, configuration: str | None, split: str) -> Any:
        assert (name, configuration, split) == ("someone/rows", "small", "train")
        return original("json", data_files=str(tmp_path / "rows.jsonl"), split=split, cache_dir=str(tmp_path / "cache"))

    monkeypatch.setattr(sys.modules["datasets"], "load_dataset", from_here)
    source = DatasetSource(dataset="someone/rows", configuration="small")
    assert texts(read_all(source)[0]) == [f"row {n}" for n in range(50)]


def test_a_name_that_nobody_has(monkeypatch: pytest.MonkeyPatch, datasets: Any) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise ConnectionError("no route")

    monkeypatch.setattr(sys.modules["datasets"], "load_dataset", refuse)
    with pytest.raises(DataError, match=r"no folder of this name, and the hub does not give it \(no route\)"):
        read_all(DatasetSource(dataset="someone/nothing"))
