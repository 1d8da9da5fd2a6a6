"""Reading documents and holding some out."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot.tokens import documents as module
from ingot.tokens.documents import HeldOut, columns_of, held_out, id_hashes, parts_of, read_columns
from ingot.workspace.errors import ArtifactError, DataError
from tests.tokens.conftest import held_ids

if TYPE_CHECKING:
    from tests.tokens.conftest import WriteDocuments


def test_reads_every_row_in_order(
    documents: Path, rows: list[dict[str, object]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = [row for batch in read_columns(documents, ["id", "text", "kind"]) for row in batch.to_pylist()]
    assert found == [{name: row[name] for name in ("id", "text", "kind")} for row in rows]
    assert columns_of(documents) == {"id", "text", "kind", "quality", "source"}
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "part-0.parquet", row_group_size=7)
    monkeypatch.setattr(module, "PART_BYTES", 20_000)
    parts = parts_of(tmp_path)
    assert len(parts) > 3
    assert len({part.key for part in parts}) == len(parts)
    assert [row["id"] for part in parts for batch in part.batches(["id"]) for row in batch.to_pylist()] == [
        row["id"] for row in rows
    ]


def test_damage_is_named(tmp_path: Path, write_documents: WriteDocuments) -> None:
    with pytest.raises(ArtifactError, match="no part-"):
        list(read_columns(tmp_path, ["id"]))
    (tmp_path / "part-00000.parquet").write_bytes(b"PAR1 and nothing more")
    for use in (lambda: list(read_columns(tmp_path, ["id"])), lambda: parts_of(tmp_path), lambda: columns_of(tmp_path)):
        with pytest.raises(ArtifactError, match=r"part-00000\.parquet: not a readable Parquet file"):
            use()
    write_documents(tmp_path, [{"id": "a", "text": "b"}], files=1)
    with pytest.raises(ArtifactError, match=r"part-00000\.parquet: no column kind, quality"):
        list(read_columns(tmp_path, ["id", "kind", "quality"]))
    write_documents(tmp_path, [{"id": "a"}, {"id": "b"}, {"id": "a"}], files=1)
    with pytest.raises(DataError, match="document id 'a' occurs twice"):
        held_out(tmp_path, 0.5)
    write_documents(tmp_path, [{"id": "a", "text": None, "kind": "prose", "quality": 0.5}], files=1)
    with pytest.raises(DataError, match=r"part-00000\.parquet: .*'a'.*text"):
        list(read_columns(tmp_path, ["id", "text"]))
    broken = pyarrow.Array.from_buffers(
        pyarrow.string(), 1, [None, pyarrow.py_buffer(np.array([0, 2], np.int32)), pyarrow.py_buffer(b"\xffa")]
    )
    pyarrow.parquet.write_table(pyarrow.table({"id": ["a"], "text": broken}), tmp_path / "part-00000.parquet")
    with pytest.raises(ArtifactError, match=r"part-00000\.parquet: .*[Uu][Tt][Ff]"):
        list(read_columns(tmp_path, ["id", "text"]))


@given(ids=st.sets(st.text(max_size=5), min_size=2), share=st.floats(0.01, 0.99))
def test_some_but_not_all_are_held_out(ids: set[str], share: float) -> None:
    places = id_hashes(sorted(ids), "held out")
    held = HeldOut.of(places, share)
    chosen = held.mask(places)
    assert 0 < chosen.sum() < len(ids)
    assert (held.mask(places[::-1]) == chosen[::-1]).all(), "the order does not matter"


def test_a_place_is_a_hash_of_the_id() -> None:
    digest = hashlib.blake2b("order\0é".encode(), digest_size=8).digest()
    assert id_hashes(["é"], "order").tolist() == [int.from_bytes(digest, "big")]


def test_shares_and_stability(documents: Path, rows: list[dict[str, object]]) -> None:
    places = id_hashes(map(str, range(20_000)), "held out")
    chosen = HeldOut.of(places, 0.05).mask(places)
    assert 850 < chosen.sum() < 1150
    assert (HeldOut.of(places[:5000], 0.05).mask(places[:5000]) == chosen[:5000]).all(), "its own id decides"
    held, count = held_out(documents, 0.1)
    ids = [str(row["id"]) for row in rows]
    assert count == len(rows)
    assert {id for id, out in zip(ids, held.mask(id_hashes(ids, "held out")), strict=True) if out} == held_ids(
        rows, 0.1
    )


def test_one_document_is_too_few() -> None:
    with pytest.raises(DataError, match="1 documents"):
        HeldOut.of(id_hashes(["a"], "held out"), 0.5)
