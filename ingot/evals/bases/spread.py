"""Some rows of a suite with parts: the first of each part, then the second of each.

The first rows of MMLU are all of abstract algebra; a limit should rather leave a smaller picture of the whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from ingot.envs.rows import Row

Rows = Sequence[tuple[str, Row]]


def in_turn(rows: Rows, part: Callable[[Row], Any]) -> list[tuple[str, Row]]:
    """The rows, one of each part after another; parts are in the order of their first rows."""
    first: dict[Any, int] = {}
    seen: Counter[Any] = Counter()
    order: list[tuple[int, int]] = []
    for _, row in rows:
        name = part(row)
        order.append((seen[name], first.setdefault(name, len(first))))
        seen[name] += 1
    return [rows[number] for number in sorted(range(len(rows)), key=order.__getitem__)]
