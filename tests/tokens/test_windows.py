"""Windows of a stream by walking along it: how many there are, their segments, and which document ends in which."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from ingot.tokens.shards import MappedSource, Shards
from ingot.tokens.windows import WindowRows, window, window_count
from ingot.workspace.errors import DataError
from tests.tokens.sources import write_lengths


def sources(folder: Path) -> list[MappedSource]:
    """Streams of 2 to 25 tokens, in one document and in many."""
    generator = np.random.default_rng(3)
    lengths = {f"one-{size}": [size] for size in range(2, 12)}
    lengths |= {f"many-{number}": generator.integers(1, 6, 1 + number).tolist() for number in range(1, 9)}
    return list(Shards(write_lengths(folder / "shards", lengths)).sources.values())


def test_windows_are_the_stream_cut_into_equal_parts(tmp_path: Path) -> None:
    for source, length in itertools.product(sources(tmp_path), (1, 2, 3, 5, 8)):
        predicted = len(source) - 1  # positions with a token after them
        starts = range(0, predicted, length)
        assert window_count(source, length, partial=True) == len(starts)
        assert window_count(source, length) == sum(start + length <= predicted for start in starts)
        for number, start in enumerate(starts):
            expected: list[list[int]] = []
            for position in range(start, min(start + length, predicted)):
                if position in source.starts or not expected:
                    expected.append([])
                expected[-1].append(position)
            row = window(source, number, length)
            segments = [list(range(first, first + size)) for first, size in zip(row.starts, row.sizes, strict=True)]
            assert segments == expected
            # a document ends where the next position begins another one
            assert row.ends_document.tolist() == [each[-1] + 1 in source.starts for each in expected]


def test_rows_of_an_epoch_are_all_windows_each_once(tmp_path: Path) -> None:
    source = sources(tmp_path)[-1]
    rows = WindowRows(source, 2, "key")
    count = window_count(source, 2)
    epochs = [[int(rows.row(epoch * count + index).starts[0]) for index in range(count)] for epoch in range(6)]
    assert all(sorted(epoch) == list(range(0, 2 * count, 2)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 6, "each epoch has an order of its own"
    again = WindowRows(source, 2, "key")
    assert [int(again.row(index).starts[0]) for index in range(count)] == epochs[0]
    with pytest.raises(DataError, match=f"{len(source)} tokens do not fill a row of {len(source)}"):
        WindowRows(source, len(source), "key")
    assert WindowRows(source, len(source) - 1, "key").row(7).sizes.sum() == len(source) - 1
