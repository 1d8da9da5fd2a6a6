"""Sudoku of 4×4, 6×6 or 9×9 with one solution.

The thinking fills one cell a line and says why: what its row, column and box already have, or the one place that is left for a
digit. Where neither helps it says that only this digit leads to a solution, which is true because there is one solution.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from ingot.envs.environment import Environment, in_place
from ingot.envs.episode import Score
from ingot.envs.task import Task
from ingot.envs.tasks._wording import word
from ingot.envs.verifiers.text.reply import final_content, format_ok
from ingot.tokens.chat import Message

FORM = "one row a line, digits separated by blanks"
WORDINGS = (
    "Solve this {0}x{0} sudoku with boxes of {1} rows and {2} columns; answer with the whole grid, " + FORM + ":\n{3}",
    "Fill in the sudoku. Each row, each column and each box of {1} rows and {2} columns has the digits 1 to {0} once. "
    "Answer with the whole grid, " + FORM + ".\n{3}",
    "Here is a {0}x{0} sudoku (boxes: {1} rows, {2} columns; _ is empty). Write the finished grid, " + FORM + ".\n{3}",
)
BOXES = {4: (2, 2), 6: (2, 3), 9: (3, 3)}
LENGTH_LIMIT = 400

Grid = tuple[int, ...]  # row by row; 0 is an empty cell


class Sudoku(Environment):
    """Sudoku with one solution."""

    label: ClassVar[str] = "sudoku"
    size: Literal[4, 6, 9] = Field(4, description="rows and columns")
    empty_min: int = Field(4, ge=1, le=64, description="empty cells of the easiest puzzles")
    empty_max: int = Field(
        8,
        ge=1,
        le=64,
        description="empty cells of the hardest; there are fewer where one more would allow two solutions",
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.empty_min > self.empty_max:
            raise ValueError(f"empty_min ({self.empty_min}) is larger than empty_max ({self.empty_max})")
        if self.empty_max >= self.size**2:
            raise ValueError(f"empty_max ({self.empty_max}) leaves no digit in a grid of {self.size**2} cells")
        return self

    def draw(self, rng: random.Random) -> Task:
        full = next(solutions((0,) * self.size**2, self.size, rng))
        cells = list(range(self.size**2))
        rng.shuffle(cells)
        wanted, grid = rng.randint(self.empty_min, self.empty_max), full
        for cell in cells:
            without = (*grid[:cell], 0, *grid[cell + 1 :])
            if has_one_solution(without, self.size):
                grid = without
            if grid.count(0) == wanted:
                break
        question = word(WORDINGS, rng, self.size, *BOXES[self.size], show(grid, self.size))
        fact = f"sudoku {''.join(map(str, grid))}"
        return self.ask(question, show(full, self.size), fact=fact, asked=(self.size, grid, full))

    def solution(self, task: Task) -> list[Message]:
        size, grid, full = task.asked
        return [Message(role="assistant", content=task.answer, thinking="\n".join(steps(grid, full, size)))]

    def weaker(self, task: Task, rng: random.Random) -> list[Message]:
        """Two neighbouring digits of a row that has empty cells are swapped in the answer."""
        size, grid, full = task.asked
        cell = rng.choice([cell for cell, digit in enumerate(grid) if digit == 0])
        other = cell - 1 if cell % size else cell + 1
        wrong = list(full)
        wrong[cell], wrong[other] = wrong[other], wrong[cell]
        (reply,) = self.solution(task)
        return [replace(reply, content=show(wrong, size))]

    @in_place
    def score(self, task: Task, messages: Sequence[Message]) -> Score:
        size, grid, _ = task.asked
        correct = completes(final_content(messages), grid, size)
        well_formed = format_ok(messages, task.thinking)
        return Score(float(correct and well_formed), correct, well_formed)


def show(grid: Sequence[int], size: int) -> str:
    """A grid as text: one row a line, _ for an empty cell."""
    rows = (grid[start : start + size] for start in range(0, len(grid), size))
    return "\n".join(" ".join(str(digit) if digit else "_" for digit in row) for row in rows)


def completes(text: str, grid: Grid, size: int) -> bool:
    """Whether a text is a grid of this form that keeps the given digits and follows the rules."""
    if len(text) > LENGTH_LIMIT:
        return False
    rows = [re.sub(r"[ \t]", "", line) for line in text.strip().splitlines()]
    if len(rows) != size or any(not re.fullmatch("[1-9]+", row, re.ASCII) or len(row) != size for row in rows):
        return False
    filled = tuple(int(digit) for row in rows for digit in row)
    if any(digit not in (0, found) for digit, found in zip(grid, filled, strict=True)):
        return False
    return all(sorted(filled[cell] for cell in unit) == list(range(1, size + 1)) for _, unit in units(size))


@cache
def units(size: int) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """The rows, columns and boxes by name, with their cells."""
    tall, wide = BOXES[size]
    rows = [(f"row {row + 1}", tuple(range(row * size, (row + 1) * size))) for row in range(size)]
    columns = [(f"column {column + 1}", tuple(range(column, size * size, size))) for column in range(size)]
    corners = [(row, column) for row in range(0, size, tall) for column in range(0, size, wide)]
    boxes = [
        (f"box {number}", tuple((row + down) * size + column + right for down in range(tall) for right in range(wide)))
        for number, (row, column) in enumerate(corners, start=1)
    ]
    return (*rows, *columns, *boxes)


@cache
def neighbours(size: int) -> tuple[tuple[int, ...], ...]:
    """For every cell those that must have another digit."""
    of = [{other for _, unit in units(size) if cell in unit for other in unit} - {cell} for cell in range(size**2)]
    return tuple(tuple(sorted(others)) for others in of)


def candidates(grid: Sequence[int], cell: int, size: int) -> list[int]:
    """The digits that no neighbour has."""
    taken = {grid[other] for other in neighbours(size)[cell]}
    return [digit for digit in range(1, size + 1) if digit not in taken]


def solutions(grid: Grid, size: int, rng: random.Random | None = None) -> Iterator[Grid]:
    """All solutions, in the order of the digits or a random one."""
    cell, fits = -1, list(range(size + 1))
    for other, digit in enumerate(grid):
        if digit == 0 and len(found := candidates(grid, other, size)) < len(fits):
            cell, fits = other, found
    if cell < 0:
        yield grid
        return
    if rng is not None:
        rng.shuffle(fits)
    for digit in fits:
        yield from solutions((*grid[:cell], digit, *grid[cell + 1 :]), size, rng)


def has_one_solution(grid: Grid, size: int) -> bool:
    """Whether a grid has exactly one solution."""
    found = solutions(grid, size)
    return next(found, None) is not None and next(found, None) is None


def steps(grid: Grid, full: Grid, size: int) -> Iterator[str]:
    """One line for every empty cell, in an order in which each follows from those before."""
    now = list(grid)
    while 0 in now:
        cell, reason = next(_singles(now, size), (now.index(0), "no other digit leads to a solution"))
        now[cell] = full[cell]
        yield f"row {cell // size + 1}, column {cell % size + 1}: {full[cell]}, {reason}"


def _singles(grid: list[int], size: int) -> Iterator[tuple[int, str]]:
    """Cells whose digit follows at once, with the reason."""
    empty = [cell for cell, digit in enumerate(grid) if digit == 0]
    fits = {cell: candidates(grid, cell, size) for cell in empty}
    for cell in empty:
        if len(fits[cell]) == 1:
            seen = sorted({grid[other] for other in neighbours(size)[cell]} - {0})
            yield cell, f"its row, column and box have {' '.join(map(str, seen))}"
    for name, unit in units(size):
        for digit in range(1, size + 1):
            places = [cell for cell in unit if digit in fits.get(cell, ())]
            if len(places) == 1 and digit not in (grid[cell] for cell in unit):
                yield places[0], f"the only place for {digit} in {name}"
