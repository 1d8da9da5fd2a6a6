"""Best fit decreasing and next fit against literal walks of their definitions, and the batch that comes out."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ingot.tokens.batch import PADDING_DOCUMENT, TokenSequence
from ingot.tokens.packing import best_fit_decreasing, best_fit_rows, make_batch, next_fit_rows
from ingot.workspace.errors import DataError


def walk(lengths: list[int], capacity: int) -> list[list[int]]:
    """The definition with a plain search over all rows: longest first, into the fullest row that still has room."""
    rows: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda index: (-lengths[index], index)):
        room = [(capacity - sum(lengths[i] for i in row), number) for number, row in enumerate(rows)]
        fitting = [(space, number) for space, number in room if space >= lengths[index]]
        if fitting:
            rows[min(fitting)[1]].append(index)
        else:
            rows.append([index])
    return rows


@given(st.lists(st.integers(1, 50), max_size=60), st.integers(50, 80))
def test_rows_are_those_of_the_definition(lengths: list[int], capacity: int) -> None:
    rows = best_fit_decreasing(lengths, capacity)
    assert rows == walk(lengths, capacity)
    assert sorted(index for row in rows for index in row) == list(range(len(lengths)))
    assert all(sum(lengths[index] for index in row) <= capacity for row in rows)


@given(st.lists(st.integers(1, 50), max_size=60), st.integers(50, 80))
def test_next_fit_is_its_definition(lengths: list[int], capacity: int) -> None:
    expected, row, free = [], -1, 0
    for length in lengths:
        if length > free:
            row, free = row + 1, capacity
        expected.append(row)
        free -= length
    assert next_fit_rows(np.asarray(lengths, dtype=np.int64), capacity).tolist() == expected


@pytest.mark.parametrize(("mean", "deviation"), [(6.5, 1.2), (6.0, 1.5)])
def test_padding_of_web_lengths_is_what_is_published(mean: float, deviation: float) -> None:
    """OLMo-core's packer leaves 0.003 % of 200,000 log-normal lengths in rows of 8,192."""
    generator = np.random.default_rng(0)
    lengths = np.clip(generator.lognormal(mean, deviation, 200_000).astype(np.int64), 1, 8192)
    rows = best_fit_rows(lengths, 8192)
    used = np.bincount(rows, weights=lengths)
    assert used.max() <= 8192
    assert 1 - used.sum() / (8192 * len(used)) < 3e-5
    assert len(used) <= 1 + np.ceil(lengths.sum() / 8192), "at most one row more than any packing needs"


def test_rows_are_as_full_as_those_of_trl() -> None:
    """TRL takes another one of several rows with the same free space, so that rows differ; how full they are does not."""
    from datasets import Dataset
    from trl import pack_dataset

    lengths = np.clip(np.random.default_rng(1).lognormal(4, 1.2, 3000).astype(np.int64), 1, 512)
    used = np.bincount(best_fit_rows(lengths, 512), weights=lengths)
    table = Dataset.from_dict({"input_ids": [[1] * size for size in lengths.tolist()]})
    rows = pack_dataset(table, 512, strategy="bfd", map_kwargs={"batch_size": 3000, "keep_in_memory": True})
    assert sorted(used) == sorted(sum(sizes) for sizes in rows["seq_lengths"])


@pytest.mark.parametrize("fit", [best_fit_rows, next_fit_rows])
def test_too_long_for_a_row(fit: Callable[[NDArray[np.int64], int], NDArray[np.int64]]) -> None:
    with pytest.raises(DataError, match=r"sequence 2 needs 10 positions, a row has 8"):
        fit(np.asarray([3, 8, 10]), 8)


def test_a_sequence_longer_than_a_row_is_named() -> None:
    with pytest.raises(DataError, match=r"sequence 1 needs 9 positions, a row has 8"):
        best_fit_decreasing([3, 9], 8)


def test_a_batch_holds_every_sequence_shifted_by_one() -> None:
    sequences = [
        TokenSequence([10, 11, 12, 13], {"weight": [0.0, 1.0, 0.0, 1.0]}),
        TokenSequence([20, 21], {"weight": [0.0, 2.0]}),
        TokenSequence([30, 31, 32], {"weight": [5.0, 3.0, 4.0]}),
    ]
    batch = make_batch(sequences, 4)
    assert batch.tokens.tolist() == [[10, 11, 12, 20], [30, 31, 0, 0]]
    assert batch.targets.tolist() == [[11, 12, 13, 21], [31, 32, 0, 0]]
    assert batch.positions.tolist() == [[0, 1, 2, 0], [0, 1, 0, 0]]
    assert batch.documents.tolist() == [[0, 0, 0, 1], [0, 0, PADDING_DOCUMENT, PADDING_DOCUMENT]]
    assert batch.streams["weight"].tolist() == [[1.0, 0.0, 1.0, 2.0], [3.0, 4.0, 0.0, 0.0]]
    assert batch.token_count == 6
