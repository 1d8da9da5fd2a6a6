"""Worked examples before a question: the first ones of a pool, or drawn as the LM evaluation harness draws them.

The harness has one generator for a task, `random.Random(1234)`, and draws anew for every row, in the order of rows. So the
examples of row i depend on i, on how many there are, and on the pool's order; rows share no prefix. Where the pool may hold the
row itself, one example more is drawn and the row itself is dropped. Some published prompts have fixed examples instead (MMLU):
the first ones of the pool.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Generic, Literal, TypeVar

from ingot.workspace.errors import DataError

HARNESS_SEED = 1234
Draw = Literal["first", "random"]
Example = TypeVar("Example")


class FewShot(Generic[Example]):
    """Draws worked examples for one row after another. `itself` says that a row may be in the pool."""

    def __init__(self, pool: Sequence[Example], count: int, draw: Draw, *, itself: bool = False) -> None:
        if len(pool) < count + itself:
            raise DataError(
                f"{count} worked examples are asked for, and there are {len(pool)} rows to take them from",
                fix="lower `shots`, or give more rows in `shot_files`",
            )
        self.pool, self.count, self.draw, self.itself = list(pool), count, draw, itself
        self.random = random.Random(HARNESS_SEED)

    def __call__(self, row: Any) -> list[Example]:
        """The examples of the next row."""
        if not self.count:
            return []
        if self.draw == "first":
            return self._others(self.pool, row)[: self.count]
        drawn = self._others(self.random.sample(self.pool, self.count + self.itself), row)
        if len(drawn) < self.count:  # the row is in the pool more than once
            drawn = self.random.sample(self._others(self.pool, row), self.count)
        return drawn[: self.count]

    def _others(self, examples: list[Example], row: Any) -> list[Example]:
        return [example for example in examples if example != row] if self.itself else examples
