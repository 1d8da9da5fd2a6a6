"""Batch-size warmup: how many rows each step has, as a pure function of the step.

A linear warmup from r₀ to r rows over W tokens in L = (r − r₀) / increment equal rises: a step that begins after t tokens has

    r₀ + increment · floor(t L / W)   rows,    r from W tokens on

(DeepSeek-V3, arXiv 2412.19437; GLM-4.5, arXiv 2508.06471). With `sizes`, a step that begins after t tokens has the last size
whose `after` is at most t (MiniMax-01, arXiv 2501.08313). Either way the batch is a stair over the steps, stored as
its edges: (first step, rows in all steps before it, rows), one per size that occurs, so that any step is found by bisection.

While the batch is smaller than the final one, Adam's best rate is smaller too, about with the root of the batch (arXiv
2405.14578): `lr_scaling: sqrt` multiplies the learning rate with sqrt(rows(step) / r).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import NamedTuple

from ingot.optim.config import BatchWarmupConfig


class Stair(NamedTuple):
    """From step `step` on, before which the run saw `before` rows, a step has `rows` rows."""

    step: int
    before: int
    rows: int


class BatchSizes:
    """How many rows each step of a stage has."""

    def __init__(self, batch_tokens: int, sequence_length: int, warmup: BatchWarmupConfig | None = None) -> None:
        """Raises ValueError if a size is no whole number of rows or the sizes do not lead to `batch_tokens`."""
        self.sequence_length = sequence_length
        self.final = self._in_rows("batch_tokens", batch_tokens)
        self.scaled = warmup is not None and warmup.lr_scaling == "sqrt"
        self.stairs = [Stair(0, 0, self.final)] if warmup is None else self._build(warmup)

    def rows(self, step: int) -> int:
        """The rows of step `step`."""
        return self._stair(step).rows

    def rows_before(self, step: int) -> int:
        """The rows of all steps before `step`."""
        stair = self._stair(step)
        return stair.before + (step - stair.step) * stair.rows

    def tokens_before(self, step: int) -> int:
        """The positions in the rows of all steps before `step`."""
        return self.rows_before(step) * self.sequence_length

    def steps_for(self, tokens: int) -> int:
        """The number of steps that see at least `tokens` tokens."""
        rows = _ceil(tokens, self.sequence_length)
        stair = self.stairs[bisect_right(self.stairs, rows, key=lambda stair: stair.before) - 1]
        return stair.step + _ceil(rows - stair.before, stair.rows)

    def rate_share(self, step: int) -> float:
        """The factor on the step's learning rate because its batch is smaller than the final one."""
        return math.sqrt(self.rows(step) / self.final) if self.scaled else 1.0

    def _stair(self, step: int) -> Stair:
        return self.stairs[bisect_right(self.stairs, step, key=lambda stair: stair.step) - 1]

    def _build(self, warmup: BatchWarmupConfig) -> list[Stair]:
        """The sizes one after the other; each lasts until the first step that begins at or after the next one's point."""
        start = self._in_rows("batch_warmup.start", warmup.start)
        points, unit = self._sizes(warmup) if warmup.over is None else self._rises(warmup.over, start, warmup.increment)
        stairs = [Stair(0, 0, start)]
        for tokens, rows in points:
            last = stairs[-1]
            left = tokens - last.before * self.sequence_length * unit  # tokens until the point, times the unit
            taken = max(0, _ceil(left, last.rows * self.sequence_length * unit))
            if taken == 0:  # the point before was passed within the same step
                stairs.pop()
            stairs.append(Stair(last.step + taken, last.before + taken * last.rows, rows))
        return stairs

    def _sizes(self, warmup: BatchWarmupConfig) -> tuple[list[tuple[int, int]], int]:
        """(tokens, rows from there on), and what the tokens are multiples of: 1."""
        points = [(size.after, self._in_rows("batch_warmup.sizes", size.batch_tokens)) for size in warmup.sizes]
        if points[-1][1] != self.final:
            raise ValueError(
                f"batch_warmup.sizes ends at {points[-1][1]} rows, batch_tokens are {self.final}: they must agree"
            )
        return points, 1

    def _rises(self, over: int, start: int, increment: int) -> tuple[list[tuple[int, int]], int]:
        """The same of a linear warmup, in tokens / L: exact whatever L is."""
        rises, rest = divmod(self.final - start, increment)
        if rises < 1:
            raise ValueError(f"a linear batch warmup must grow, and it goes from {start} to {self.final} rows")
        if rest:
            raise ValueError(
                f"the batch grows from {start} to {self.final} rows, which is not a multiple of increment ({increment})"
            )
        return [(over * rise, start + increment * rise) for rise in range(1, rises + 1)], rises

    def _in_rows(self, name: str, tokens: int) -> int:
        rows, rest = divmod(tokens, self.sequence_length)
        if rest:
            raise ValueError(f"{name} ({tokens}) must be a multiple of sequence_length ({self.sequence_length})")
        return rows


def _ceil(amount: int, part: int) -> int:
    return -(-amount // part)
