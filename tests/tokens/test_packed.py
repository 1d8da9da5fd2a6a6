"""Packed rows by brute force: nothing lost, nothing doubled, nothing cut that fits, in every epoch and with every group."""

from __future__ import annotations

from collections import Counter
from itertools import groupby, pairwise
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from ingot.tokens import packed
from ingot.tokens.packed import PackedRows
from ingot.tokens.rows import Row, make_rows
from ingot.tokens.shards import MappedSource, Shards
from ingot.workspace.errors import DataError
from tests.tokens.sources import write_lengths

LENGTH = 32
Method = Literal["best_fit", "greedy"]
both = pytest.mark.parametrize("method", ["best_fit", "greedy"])


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> MappedSource:
    """700 documents of 1 to 150 tokens, most of them short."""
    lengths = np.minimum(1 + np.random.default_rng(1).exponential(15, 700).astype(np.int64), 150)
    return Shards(write_lengths(tmp_path_factory.mktemp("packed") / "shards", {"all": lengths})).source("all")


@pytest.fixture(autouse=True)
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "GROUP_DOCUMENTS", 64)


def epoch(rows: PackedRows, number: int) -> list[Row]:
    return [rows.row(index) for index in range(number * rows.per_epoch, (number + 1) * rows.per_epoch)]


def pieces(rows: list[Row]) -> list[tuple[int, int]]:
    return [piece for row in rows for piece in zip(row.starts.tolist(), row.sizes.tolist(), strict=True)]


def documents(source: MappedSource) -> list[tuple[int, int]]:
    """First token and end of every document."""
    return list(pairwise([*source.starts.tolist(), len(source)]))


@both
@pytest.mark.parametrize("number", [0, 1, 5])
def test_an_epoch_holds_every_document_once_and_whole(source: MappedSource, method: Method, number: int) -> None:
    rows = epoch(PackedRows(source, LENGTH, "key", method), number)
    expected = Counter(
        (place, min(LENGTH, end - 1 - place))
        for start, end in documents(source)
        for place in range(start, end - 1, LENGTH)
    )
    assert Counter(pieces(rows)) == expected
    assert all(0 < row.sizes.sum() <= LENGTH for row in rows)


@both
def test_the_batch_holds_the_documents_tokens(source: MappedSource, method: Method) -> None:
    """Every piece read back from the tensors by walking: tokens, targets, positions, weights, padding."""
    packed_rows = PackedRows(source, LENGTH, "key", method)
    rows = epoch(packed_rows, 0)
    batch, stream = make_rows(rows, LENGTH), source.read(0, len(source)).tolist()
    free = 0
    for number, row in enumerate(rows):
        t = 0
        for document, (start, size) in enumerate(zip(row.starts.tolist(), row.sizes.tolist(), strict=True)):
            for offset in range(size):
                found = (
                    batch.tokens[number, t].item(),
                    batch.targets[number, t].item(),
                    batch.positions[number, t].item(),
                    batch.documents[number, t].item(),
                    batch.streams["weight"][number, t].item(),
                )
                assert found == (stream[start + offset], stream[start + offset + 1], offset, document, 1.0)
                t += 1
        rest = (batch.tokens, batch.targets, batch.positions, batch.streams["weight"], batch.documents + 1)
        assert not any(tensor[number, t:].any() for tensor in rest), "padding: zeros, and document −1"
        free += LENGTH - t
    assert packed_rows.padding == pytest.approx(free / (len(rows) * LENGTH))
    groups = -(-len(source.starts) // packed.GROUP_DOCUMENTS)
    assert free < (groups * LENGTH if method == "best_fit" else len(rows) * LENGTH / 2), (
        "best fit: less than a row of each group; next fit: it never needs twice the rows of the best packing"
    )


def test_pieces_that_span_their_own_length_by_chance(source: MappedSource) -> None:
    """The last piece ends 30 places after the first begins, and the three have 30 places: still not one stretch."""
    starts, sizes = np.asarray([0, 500, 20]), np.asarray([10, 10, 10])
    batch = make_rows([Row(source, starts, sizes, np.zeros(3, dtype=np.bool_))], 30)
    stream = source.read(0, len(source)).tolist()
    assert batch.tokens[0].tolist() == stream[0:10] + stream[500:510] + stream[20:30]
    assert batch.targets[0].tolist() == stream[1:11] + stream[501:511] + stream[21:31]


@both
def test_a_row_is_a_function_of_its_number(source: MappedSource, method: Method) -> None:
    straight = PackedRows(source, LENGTH, "key", method)
    wanted = [pieces([straight.row(index)]) for index in range(2 * straight.per_epoch)]
    again = PackedRows(source, LENGTH, "key", method)
    for index in np.random.default_rng(3).permutation(len(wanted))[:200].tolist():
        assert pieces([again.row(index)]) == wanted[index]
    other = PackedRows(source, LENGTH, "other key", method)
    assert [pieces([other.row(index)]) for index in range(20)] != wanted[:20]


def test_epochs_have_different_orders(source: MappedSource) -> None:
    rows = PackedRows(source, LENGTH, "key", "best_fit")
    first, second = (epoch(rows, number) for number in (0, 1))
    keys = [[int(row.starts[0]) for row in one] for one in (first, second)]
    assert sorted(keys[0]) == sorted(keys[1])
    assert keys[0] != keys[1]
    matches = sum(a == b for a, b in zip(*keys, strict=True))
    assert matches <= 6, "fixed points of a random permutation: Poisson with mean 1"


def test_rows_in_a_row_are_from_all_over_the_source(source: MappedSource) -> None:
    """The mean place of a row's documents says nothing about the next row's: correlation 0 within 4 / sqrt(n)."""
    rows = epoch(PackedRows(source, LENGTH, "key", "best_fit"), 0)
    means = np.asarray([row.starts.mean() for row in rows])
    correlation = np.corrcoef(means[1:], means[:-1])[0, 1]
    assert abs(correlation) < 4 / len(rows) ** 0.5
    neighbours = [np.abs(np.diff(np.searchsorted(source.starts, row.starts, side="right"))) for row in rows]
    assert np.mean(np.concatenate(neighbours)) > 700 / 3 * 0.8, (
        "documents in a row: expected distance is a third of all"
    )


@both
@pytest.mark.parametrize("minimum", [2, 30, 100])
def test_a_view_holds_the_long_documents_only(source: MappedSource, method: Method, minimum: int) -> None:
    rows = epoch(PackedRows(source, LENGTH, "key", method, minimum), 0)
    covered = sorted(start for start, _ in pieces(rows))
    expected = sorted(
        place for start, end in documents(source) if end - start >= minimum for place in range(start, end - 1, LENGTH)
    )
    assert covered == expected


def test_a_view_of_nothing_is_named(source: MappedSource) -> None:
    with pytest.raises(DataError, match="all: no document has 151 tokens"):
        PackedRows(source, LENGTH, "key", "best_fit", 151)


def test_documents_of_one_token_alone_are_named(tmp_path: Path) -> None:
    source = Shards(write_lengths(tmp_path / "shards", {"empty": [1] * 10})).source("empty")
    with pytest.raises(DataError, match="empty: no document has 2 tokens"):
        PackedRows(source, LENGTH, "key", "greedy")


def test_books_make_smaller_groups(source: MappedSource, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group is bounded in pieces too; what the groups are changes the packing and nothing else."""
    monkeypatch.setattr(packed, "GROUP_SEGMENTS", 3)
    rows = PackedRows(source, LENGTH, "key", "best_fit")
    starts = [start for start, _ in pieces(epoch(rows, 0))]
    assert len(starts) == len(set(starts)) == sum(-(-(end - start - 1) // LENGTH) for start, end in documents(source))
    assert rows.padding > 0.05, "six documents do not fill rows well"


class Enormous(MappedSource):
    """A source of which only the lengths of its documents are there."""

    def __init__(self, lengths: list[int]) -> None:
        self.starts, self.size = np.cumsum([0, *lengths[:-1]]), sum(lengths)

    def __len__(self) -> int:
        return self.size


def test_six_files_of_a_hundred_megabytes_do_not_come_one_after_the_other() -> None:
    """Ten thousand rows each. The longest run of the same file in n draws from six is about log(n) / log(6)."""
    rows = PackedRows(Enormous([40_000_000] * 6), 4096, "key", "best_fit")
    files = [int(np.searchsorted(rows.source.starts, rows.row(index).starts[0], side="right")) for index in range(5000)]
    assert Counter(files).keys() == {1, 2, 3, 4, 5, 6} and max(Counter(files).values()) < 5000 / 6 * 1.2
    assert max(len(list(run)) for _, run in groupby(files)) < 12
