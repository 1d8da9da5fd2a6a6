"""Best fit decreasing against a literal walk of its definition, and the batch that comes out of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot.tokens.batch import PADDING_DOCUMENT, Sequence
from ingot.tokens.packing import best_fit_decreasing, make_batch
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


def test_a_sequence_longer_than_a_row_is_named() -> None:
    with pytest.raises(DataError, match=r"sequence 1 needs 9 positions, a row has 8"):
        best_fit_decreasing([3, 9], 8)


def test_a_batch_holds_every_sequence_shifted_by_one() -> None:
    sequences = [
        Sequence([10, 11, 12, 13], {"weight": [0.0, 1.0, 0.0, 1.0]}),
        Sequence([20, 21], {"weight": [0.0, 2.0]}),
        Sequence([30, 31, 32], {"weight": [5.0, 3.0, 4.0]}),
    ]
    batch = make_batch(sequences, 4)
    assert batch.tokens.tolist() == [[10, 11, 12, 20], [30, 31, 0, 0]]
    assert batch.targets.tolist() == [[11, 12, 13, 21], [31, 32, 0, 0]]
    assert batch.positions.tolist() == [[0, 1, 2, 0], [0, 1, 0, 0]]
    assert batch.documents.tolist() == [[0, 0, 0, 1], [0, 0, PADDING_DOCUMENT, PADDING_DOCUMENT]]
    assert batch.streams["weight"].tolist() == [[1.0, 0.0, 1.0, 2.0], [3.0, 4.0, 0.0, 0.0]]
    assert batch.token_count == 6
