"""numba: c (+)= a b for many rows, for product.py: as fast as the tiles of tile_loops.py when their numbers come from the caches.

    for blocks of DEPTH steps of the sum, and of the rows that the second level of a cache holds then:
        all threads pack the rows (pack_loops.py), then wait for each other
        for each panel of SIDES columns of a thread's share: pack it, with its neighbours, once for all rows; then a tile for
            every four rows

A panel of columns stays in the first level for all rows. The order of a sum is the same for any number of threads.

Shapes: M rows, K steps of the sum, N columns.
"""

from __future__ import annotations

from ingot.model.loops import ZERO, contracted, pointer
from ingot.model.pack_loops import SIDES, fetch, pack
from ingot.model.team_loops import Task, for_team, share, thread_number, wait
from ingot.model.tile_loops import COLUMNS, LANES, ROWS, tile_across, tile_transposed

DEPTH = 512  # steps of the sum in a panel
RESIDENT = 1 << 17  # floats of packed rows: half of a second level of 1 MiB
PANELS = 8  # that are packed at once where their columns are neighbours in memory
EDGE = ROWS * COLUMNS  # floats of a tile that is not whole


@contracted
def _put(tile: int, rows: int, columns: int, adds: bool, c: int, c_step: int) -> None:
    """The part of a tile that there is in c."""
    for i in range(rows):
        given, out = pointer(tile + 4 * COLUMNS * i, ZERO), pointer(c + 4 * c_step * i, ZERO)
        for j in range(columns):
            out[j] = out[j] + given[j] if adds else given[j]


@contracted
def _panel(
    rows: int, row_count: int, columns: int, column_count: int, whole: int, adds: bool, c: int, c_step: int, edge: int
) -> None:
    """All packed rows with one panel of columns."""
    for row in range(0, row_count, ROWS):
        some, out = rows + 4 * row * whole, c + 4 * row * c_step
        if row + ROWS <= row_count and column_count == COLUMNS:
            if adds:
                fetch(out + 4 * ROWS * c_step, c_step)  # for the next tile: what it adds to may be far away
                tile_transposed(some, ROWS, columns, COLUMNS, out, c_step, whole)
            else:
                tile_across(some, ROWS, columns, COLUMNS, out, c_step, whole)
        else:
            tile_across(some, ROWS, columns, COLUMNS, edge, COLUMNS, whole)
            _put(edge, min(ROWS, row_count - row), column_count, adds, out, c_step)


@for_team
def multiply(task: Task) -> None:
    """a and the distances of its rows and steps; b and those of its columns and steps; c and that of its rows; M, N, K, adds;
    working memory; steps and rows of a block, panels that a thread keeps."""
    a, a_side, a_k, b, b_side, b_k, c, c_step = task[0], task[1], task[2], task[3], task[4], task[5], task[6], task[7]
    height, width, count, adds, room = task[8], task[9], task[10], task[11], task[12]
    depth, most, kept = task[13], task[14], task[15]
    own = room + 4 * RESIDENT + 4 * (SIDES * depth * kept + EDGE) * thread_number()
    edge = own + 4 * SIDES * depth * kept
    first, last = share(-(-width // SIDES))
    at_once = 1 if b_k == 1 else PANELS
    for k in range(0, count, depth):
        steps = min(depth, count - k)
        whole = -(-steps // LANES) * LANES
        for top in range(0, height, most):
            rows = min(most, height - top)
            if k > 0 or top > 0:
                wait()  # for those who still read the rows before
            first_row, last_row = share(-(-rows // SIDES))
            row = first_row * SIDES
            source, some = a + 4 * ((top + row) * a_side + k * a_k), min(last_row * SIDES, rows) - row
            pack(source, a_side, a_k, some, steps, whole, room + 4 * row * whole, ROWS * whole, ROWS)
            wait()
            for panel in range(first, last):
                place, column = own + 4 * SIDES * whole * ((panel - first) % kept), panel * SIDES
                if top == 0 and (panel - first) % at_once == 0:
                    source, some = b + 4 * (column * b_side + k * b_k), min(width, last * SIDES) - column
                    pack(source, b_side, b_k, min(some, at_once * SIDES), steps, whole, place, LANES, SIDES)
                out = c + 4 * (top * c_step + column)
                _panel(room, rows, place, min(SIDES, width - column), whole, adds != 0 or k > 0, out, c_step, edge)
