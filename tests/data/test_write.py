"""How results are cut into parts: cases worked by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingot.data.engine.shard import Shard
from ingot.data.write import part_bytes, parts


@pytest.mark.parametrize(
    ("total", "size"),
    [(0, 8_000_000), (100_000_000, 8_000_000), (320_000_000, 20_000_000), (10_000_000_000, 64_000_000)],
)
def test_size_of_parts(total: int, size: int) -> None:
    assert part_bytes(total) == size


def test_neighbours_go_together_until_they_are_enough() -> None:
    shards = [Shard(number, "", Path(), 1, 1) for number in range(6)]
    groups = [([shard.number for shard in group], size) for group, size in parts(shards, [3, 0, 4, 5, 0, 1], 7)]
    assert groups == [([0, 2], 7), ([3, 5], 6)]
