"""What the compiled loops (tiles.py) and their caller (multiply.py) agree on."""

from __future__ import annotations

from typing import Literal

Kind = Literal["float32", "int8", "int4"]  # of the weights

# the numbers of a task, all int64, the first five addresses; a group of int4 weights is 2^(shift + 1) inputs
TASK = ("x", "weight", "scales", "minimums", "out", "rows", "inputs", "outputs", "shift")
OUTPUTS = 4  # that a thread takes at a time
STEP = 16  # inputs (of int4: bytes) of a row of W that a tile takes at a time

# int32 f(), defined before anything is compiled: which thread of the team this is, and how many there are. The team may be
# smaller than was asked for (OMP_DYNAMIC, OMP_THREAD_LIMIT), so the loops ask themselves.
THREAD_NUMBER, TEAM_SIZE = "ingot_thread_number", "ingot_team_size"
