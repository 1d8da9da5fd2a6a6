"""Shards: what is written is read back, and each kind of damage is named with its file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from ingot.tokens.shards import Shards, SourceWriter, token_dtype, write_index
from ingot.workspace.errors import ArtifactError, DataError

DOCUMENTS = [[5, 6, 7, 0], [0], [8, 9, 0]]


def write(folder: Path, vocabulary_size: int = 10) -> Path:
    entries = {}
    for name in ("prose", "validation"):
        writer = SourceWriter(folder, name, vocabulary_size)
        for number, tokens in enumerate(DOCUMENTS):
            writer.append(str(number), tokens, 10 * number, number / 4)
        entries[name] = writer.finish()
    write_index(folder, entries, np.ones(vocabulary_size, dtype=np.int32), end_of_text=0)
    return folder


@pytest.mark.parametrize(("vocabulary_size", "size"), [(10, 2), (65_536, 2), (65_537, 4)])
def test_round_trip(tmp_path: Path, vocabulary_size: int, size: int) -> None:
    folder = write(tmp_path / "shards", vocabulary_size)
    shards = Shards(folder, verify=True)
    source = shards.source("prose")
    assert source.read(0, 100).tolist() == [5, 6, 7, 0, 0, 8, 9, 0]
    assert source.starts.tolist() == [0, 4, 5]
    assert source.text_bytes.tolist() == [0, 10, 20]
    assert [bound.tolist() for bound in source.bounds(np.asarray([2, 0, 1]))] == [[5, 0, 4], [8, 4, 5]]
    assert source.quality.tolist() == [0, 0.25, 0.5]
    assert np.dtype(token_dtype(vocabulary_size)).itemsize == size
    raw = np.frombuffer((folder / "prose" / "tokens.bin").read_bytes(), dtype=f"<u{size}")
    assert raw.tolist() == [5, 6, 7, 0, 0, 8, 9, 0], "plain little-endian integers that any program can read"
    index = json.loads((folder / "index.json").read_text(encoding="utf-8"))
    assert index["vocabulary_size"] == vocabulary_size
    entry = index["sources"]["prose"]
    assert {key: entry[key] for key in ("tokens", "documents", "bytes")} == {"tokens": 8, "documents": 3, "bytes": 30}


@pytest.mark.parametrize("name", ["tokens.bin", "documents.npy", "quality.npy"])
def test_a_truncated_or_missing_file_is_named_on_every_open(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / "shards") / "prose" / name
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ArtifactError, match=f"prose.{name}.*(truncated|damaged)"):
        Shards(tmp_path / "shards")
    path.unlink()
    with pytest.raises(ArtifactError, match=f"prose.{name}: missing"):
        Shards(tmp_path / "shards")


@pytest.mark.parametrize(
    "name", ["prose/tokens.bin", "prose/documents.npy", "validation/quality.npy", "token_bytes.npy"]
)
def test_a_flipped_bit_is_found_by_verify(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / "shards") / name
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    Shards(tmp_path / "shards")
    with pytest.raises(ArtifactError, match="checksum") as caught:
        Shards(tmp_path / "shards", verify=True)
    assert str(path) in str(caught.value)


def test_an_id_out_of_range_is_named_on_read(tmp_path: Path) -> None:
    path = write(tmp_path / "shards") / "prose" / "tokens.bin"
    raw = np.fromfile(path, dtype="<u2")
    raw[5] = 10
    raw.tofile(path)
    source = Shards(tmp_path / "shards").source("prose")
    assert source.read(0, 5).tolist() == [5, 6, 7, 0, 0]
    with pytest.raises(DataError, match=r"tokens\.bin: token 5 is 10, outside the vocabulary of 10"):
        source.read(2, 8)
    assert source.take(np.asarray([7, 0])).tolist() == [0, 5]
    with pytest.raises(DataError, match=r"tokens\.bin: token 5 is 10, outside the vocabulary of 10"):
        source.take(np.asarray([7, 5, 0]))


def test_an_id_out_of_range_is_refused_on_write(tmp_path: Path) -> None:
    writer = SourceWriter(tmp_path, "prose", 10)
    for bad, named in (([3, 10], 10), ([-1, 3], -1)):
        with pytest.raises(DataError, match=f"source prose: document 'a' has token id {named} outside"):
            writer.append("a", bad, 1, 0.5)
    writer.close()


def test_empty_sources(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="source prose: no document belongs to this source"):
        SourceWriter(tmp_path, "prose", 10).finish()
    folder = write(tmp_path / "shards")
    index = json.loads((folder / "index.json").read_text(encoding="utf-8"))
    index["sources"]["prose"]["tokens"] = 0
    (folder / "index.json").write_text(json.dumps(index), encoding="utf-8")
    with pytest.raises(DataError, match="prose: the source is empty"):
        Shards(folder)


def test_index_damage(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"no index\.json"):
        Shards(tmp_path)
    folder = write(tmp_path / "shards")
    whole = (folder / "index.json").read_text(encoding="utf-8")
    for damaged in (whole[:50], "[]", whole.replace('"dtype"', '"type"')):
        (folder / "index.json").write_text(damaged, encoding="utf-8")
        with pytest.raises(ArtifactError, match=r"index\.json: the index is damaged"):
            Shards(folder)
    (folder / "index.json").write_text(whole, encoding="utf-8")
    shutil.rmtree(folder / "prose")
    with pytest.raises(ArtifactError, match="missing"):
        Shards(folder)


@pytest.mark.parametrize("version", [1, 3])
def test_an_index_of_another_version(tmp_path: Path, version: int) -> None:
    folder = write(tmp_path / "shards")
    index = json.loads((folder / "index.json").read_text(encoding="utf-8"))
    index["version"] = version
    (folder / "index.json").write_text(json.dumps(index), encoding="utf-8")
    with pytest.raises(ArtifactError, match=rf"index\.json: the index has version {version}, .* reads version 2"):
        Shards(folder)
    del index["version"]
    (folder / "index.json").write_text(json.dumps(index), encoding="utf-8")
    with pytest.raises(ArtifactError, match="the index has version 1"):
        Shards(folder)


def test_an_unknown_source_is_told_the_names(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="no source 'code'; there are prose, validation"):
        Shards(write(tmp_path / "shards")).source("code")
