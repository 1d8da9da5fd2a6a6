"""The numbers of packed rows that are kept: who counts, who reads, and that the rows are those of a fresh count."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from ingot.tokens import packed
from ingot.tokens.loader import MixtureLoader
from ingot.tokens.pack_index import PackIndex
from ingot.tokens.packed import PackedRows
from ingot.tokens.phases import ConstantBatch
from ingot.tokens.shards import MappedSource, Shards
from ingot.workspace.errors import ArtifactError
from ingot.workspace.files import write_json
from tests.tokens.sources import Phase, write_lengths

LENGTH, DOCUMENTS, GROUP = 32, 700, 64
GROUPS = -(-DOCUMENTS // GROUP)
Method = Literal["best_fit", "greedy"]
both = pytest.mark.parametrize("method", ["best_fit", "greedy"])


def lengths_of(seed: int = 1) -> Any:
    return np.minimum(1 + np.random.default_rng(seed).exponential(15, DOCUMENTS).astype(np.int64), 150)


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_lengths(tmp_path_factory.mktemp("indexed") / "shards", {"all": lengths_of()})


@pytest.fixture
def source(shards: Path) -> MappedSource:
    return Shards(shards).source("all")


@pytest.fixture(autouse=True)
def packings(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """How often each group was packed."""
    made: Counter[int] = Counter()
    pack = PackedRows._pack

    def counted(self: PackedRows, number: int) -> packed.PackedGroup:
        made[number] += 1
        return pack(self, number)

    monkeypatch.setattr(packed, "GROUP_DOCUMENTS", GROUP)
    monkeypatch.setattr(PackedRows, "_pack", counted)
    return made


def rows_of(rows: PackedRows, count: int = 500) -> list[tuple[list[int], list[int]]]:
    found = [rows.row(index) for index in range(count)]
    return [(row.starts.tolist(), row.sizes.tolist()) for row in found]


@both
def test_opening_again_packs_nothing(
    method: Method, source: MappedSource, packings: Counter[int], tmp_path: Path
) -> None:
    """The rows, in order, are those of rows that keep nothing; a group is packed when one of its rows is asked for."""
    plain = PackedRows(source, LENGTH, "1/all", method)
    expected = rows_of(plain)
    packings.clear()
    first = PackedRows(source, LENGTH, "1/all", method, index=PackIndex(tmp_path))
    assert packings == Counter(range(GROUPS))
    packings.clear()
    again = PackedRows(source, LENGTH, "1/all", method, index=PackIndex(tmp_path))
    assert not packings
    assert (again.per_epoch, again.padding) == (first.per_epoch, first.padding) == (plain.per_epoch, plain.padding)
    again.row(0)
    assert packings.total() == 1
    assert rows_of(again) == rows_of(first) == expected and again.per_epoch < 500


CHANGES: list[dict[str, Any]] = [
    {"length": LENGTH + 1},
    {"key": "2/all"},
    {"packing": "greedy"},
    {"minimum": 9},
]


@pytest.mark.parametrize("change", CHANGES)
def test_what_the_numbers_follow_from(
    change: dict[str, Any], source: MappedSource, packings: Counter[int], tmp_path: Path
) -> None:
    options: dict[str, Any] = {"length": LENGTH, "key": "1/all", "packing": "best_fit", "minimum": 0}
    PackedRows(source, **options, index=PackIndex(tmp_path))
    packings.clear()
    changed = PackedRows(source, **{**options, **change}, index=PackIndex(tmp_path))
    assert packings == Counter(range(GROUPS))
    fresh = PackedRows(source, **{**options, **change})
    assert rows_of(changed, 200) == rows_of(fresh, 200)


def test_other_documents_or_another_version_are_counted_anew(
    source: MappedSource, packings: Counter[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = PackIndex(tmp_path / "packing")
    PackedRows(source, LENGTH, "1/all", "best_fit", index=index)
    lengths = lengths_of()
    lengths[[3, 5]] = lengths[[5, 3]]  # as many documents and tokens as before
    assert lengths[3] != lengths[5]
    other = Shards(write_lengths(tmp_path / "shards", {"all": lengths})).source("all")
    packings.clear()
    PackedRows(other, LENGTH, "1/all", "best_fit", index=index)
    assert packings.total() == GROUPS
    monkeypatch.setattr(packed, "VERSION", 999)
    PackedRows(other, LENGTH, "1/all", "best_fit", index=index)
    assert packings.total() == 2 * GROUPS


def flipped(path: Path) -> None:
    kept = json.loads(path.read_text())
    kept["counts"][0][2] += 1
    write_json(path, kept)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "cut": lambda path: path.write_bytes(path.read_bytes()[:50]),
    "empty": lambda path: path.write_bytes(b""),
    "something else": lambda path: path.write_text("[1, 2]"),
    "a number changed": flipped,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_made_again(
    damage: str, source: MappedSource, packings: Counter[int], tmp_path: Path
) -> None:
    PackedRows(source, LENGTH, "1/all", "best_fit", index=PackIndex(tmp_path))
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    DAMAGES[damage](path)
    packings.clear()
    PackedRows(source, LENGTH, "1/all", "best_fit", index=PackIndex(tmp_path))
    assert packings.total() == GROUPS and path.read_bytes() == whole


def test_numbers_that_are_not_those_of_the_packing_are_found(
    source: MappedSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the packing changed and nobody raised its version."""
    rows = PackedRows(source, LENGTH, "1/all", "best_fit")
    monkeypatch.setattr(rows, "_method", packed.METHODS["greedy"])
    with pytest.raises(ArtifactError, match=r"group \d+ fills \d+ rows, and \d+ were counted before"):
        rows.row(0)


def test_a_loader_keeps_one_file_for_each_source(packings: Counter[int], tmp_path: Path) -> None:
    shards = write_lengths(tmp_path / "shards", {"a": lengths_of(1), "b": lengths_of(2)})

    def loader() -> MixtureLoader:
        phases = [Phase(1.0, {"a": 1.0, "a@20+": 0.5, "b": 1.0})]
        return MixtureLoader(
            shards,
            phases,
            sequence_length=LENGTH,
            batches=ConstantBatch(4),
            total_steps=9,
            seed=1,
            packing="best_fit",
            index=PackIndex(tmp_path / "packing"),
        )

    first = [loader().batch(step).tokens.tolist() for step in range(9)]
    assert len(list((tmp_path / "packing").iterdir())) == 3
    packings.clear()
    again = loader()
    assert not packings
    assert [again.batch(step).tokens.tolist() for step in range(9)] == first
