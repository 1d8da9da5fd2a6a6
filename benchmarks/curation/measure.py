"""How the cases of benchmarks/data.py measure: megabytes of text a CPU-second on one core, best of several rounds.

Each file beside this one has `measure(corpus, quick) -> list[row]`; `corpus` is a table with id, text and source. CPU
seconds are those of the process and its finished children, so that a busy machine does not stretch them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any


def cpu_seconds() -> float:
    """Processor time of this process and of its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def rate(function: Callable[[], Any], size: int, rounds: int = 3) -> float:
    """Megabytes a CPU-second of `function`, which works through `size` bytes of text; the best of `rounds`."""
    best = float("inf")
    for _ in range(rounds):
        began = cpu_seconds()
        function()
        best = min(best, cpu_seconds() - began)
    return size / 1e6 / max(best, 1e-9)


def row(
    case: str, ours: float, peer: float | None = None, *, peer_name: str = "", goal: float | None = None
) -> dict[str, Any]:
    """A line of the table; `ratio` is ours over the peer's."""
    return {
        "case": case,
        "ours": round(ours, 2),
        "peer": None if peer is None else round(peer, 2),
        "peer_name": peer_name,
        "ratio": None if not peer else round(ours / peer, 2),
        "goal": goal,
        "unit": "MB/CPU-s",
    }
