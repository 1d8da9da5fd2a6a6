"""How the cases of benchmarks/data.py measure: megabytes of text a CPU-second on one core, best of several rounds.

A row with a peer compares like with like (`compare`): both work through the same texts in this process, are called once
before the clock runs, and have as many rounds, in turn. Peers are slow, so such rows are measured on a sample (`sample_of`).

Each other file of this folder has `measure(corpus, quick) -> list[row]`; `corpus` is a table with id, text and source. CPU
seconds are those of the process and its finished children, so that a busy machine does not stretch them.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow

from ingot.data.text.texts import Texts


def cpu_seconds() -> float:
    """Processor time of this process and of its children that have ended."""
    used = (resource.getrusage(which) for which in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def rate(function: Callable[[], Any], size: int, rounds: int = 3) -> float:
    """Megabytes a CPU-second of `function`, which works through `size` bytes of text; the best of `rounds`."""
    best = float("inf")
    for _ in range(rounds):
        began = cpu_seconds()
        function()
        best = min(best, cpu_seconds() - began)
    return size / 1e6 / max(best, 1e-9)


def compare(ours: Callable[[], Any], peer: Callable[[], Any], size: int, rounds: int) -> tuple[float, float]:
    """Megabytes a CPU-second of both, on the same `size` bytes: each is warmed by one call, then they take turns."""
    best = [float("inf")] * 2
    for attempt in range(rounds + 1):
        for number, function in enumerate((ours, peer)):
            began = cpu_seconds()
            function()
            best[number] = min(best[number], cpu_seconds() - began) if attempt else best[number]
    return size / 1e6 / max(best[0], 1e-9), size / 1e6 / max(best[1], 1e-9)


def sample_of(corpus: pyarrow.Table, quick: bool) -> tuple[pyarrow.Table, int]:
    """The first documents of the corpus, and their bytes: what ours and a slow peer are both measured on."""
    sizes = np.cumsum(np.diff(Texts.of(corpus.column("text")).offsets))
    rows = int(np.searchsorted(sizes, 1_000_000 if quick else 4_000_000)) + 1
    return corpus.slice(0, rows), int(sizes[min(rows, len(sizes)) - 1])


def note(text: str) -> None:
    """Say something that is not a line of the table."""
    print(f"  {text}", file=sys.stderr)


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
