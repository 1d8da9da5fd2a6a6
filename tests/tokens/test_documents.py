"""Reading documents and holding some out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingot.tokens.documents import held_out, place_of, read_documents, read_ids
from ingot.workspace.errors import ArtifactError, DataError

if TYPE_CHECKING:
    from tests.tokens.conftest import WriteDocuments


def test_reads_every_row_in_order(documents: Path, rows: list[dict[str, object]]) -> None:
    found = [document for batch in read_documents(documents) for document in batch]
    expected = [(row["id"], row["text"], row["kind"], row["quality"]) for row in rows]
    assert [(document.id, document.text, document.kind, document.quality) for document in found] == expected
    assert read_ids(documents) == [row["id"] for row in rows]


def test_damage_is_named(tmp_path: Path, write_documents: WriteDocuments) -> None:
    with pytest.raises(ArtifactError, match="no part-"):
        list(read_documents(tmp_path))
    (tmp_path / "part-00000.parquet").write_bytes(b"PAR1 and nothing more")
    with pytest.raises(ArtifactError, match=r"part-00000\.parquet: not a readable Parquet file"):
        list(read_documents(tmp_path))
    with pytest.raises(ArtifactError, match=r"part-00000\.parquet: not a readable Parquet file"):
        read_ids(tmp_path)
    write_documents(tmp_path, [{"id": "a", "text": "b"}], files=1)
    with pytest.raises(ArtifactError, match=r"part-00000\.parquet: no column kind, quality"):
        list(read_documents(tmp_path))
    write_documents(tmp_path, [{"id": "a"}, {"id": "b"}, {"id": "a"}], files=1)
    with pytest.raises(DataError, match="document id 'a' occurs twice"):
        read_ids(tmp_path)
    write_documents(tmp_path, [{"id": "a", "text": None, "kind": "prose", "quality": 0.5}], files=1)
    with pytest.raises(DataError, match=r"part-00000\.parquet: .*'a'.*text"):
        list(read_documents(tmp_path))


@settings(deadline=None)  # a busy machine is no failure
@given(ids=st.sets(st.text(), min_size=2, max_size=60), share=st.floats(0.001, 0.999))
def test_some_but_not_all_are_held_out(ids: set[str], share: float) -> None:
    chosen = held_out(ids, share)
    assert 0 < len(chosen) < len(ids)
    assert chosen <= ids
    assert held_out(sorted(ids, reverse=True), share) == chosen, "the order does not matter"


def test_the_share_is_kept_and_choices_are_independent() -> None:
    ids = [f"document {number}" for number in range(20_000)]
    chosen = held_out(ids, 0.05)
    assert abs(len(chosen) - 1000) < 5 * (20_000 * 0.05 * 0.95) ** 0.5
    assert held_out(ids[:5000], 0.05) == chosen & set(ids[:5000]), "a document's fate depends on its own id"
    other = {id for id in ids if place_of(id, "another purpose") < 0.05}
    assert len(chosen & other) < 5 * 20_000 * 0.05**2


def test_one_document_is_too_few() -> None:
    with pytest.raises(DataError, match="1 documents"):
        held_out(["a"], 0.5)
