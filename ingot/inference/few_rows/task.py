"""What the compiled program (program.py) and its caller (multiply.py) agree on."""

from __future__ import annotations

from typing import Literal

Kind = Literal["float32", "int8", "int4"]  # of the weights

# the numbers of a task, all int64, the first six addresses; a group of int4 weights is 2^(shift + 1) inputs
TASK = ("x", "weight", "scales", "minimums", "out", "panels", "rows", "inputs", "outputs", "shift")
OUTPUTS = 4  # that a thread takes at a time
PANEL, LEAST_OF_PANEL = 8, 6  # rows of x that are transposed together, and the fewest that are filled up to that
STEP = 16  # inputs (of int4: bytes) of a row of W that a tile takes at a time


def panels_for(rows: int) -> int:
    """How many panels this many rows have; up to five rows that are left over have none."""
    return (rows + PANEL - LEAST_OF_PANEL) // PANEL
