"""Writes and reads the metrics of a stage: one JSON object a line, appended as the stage runs.

Each line has `step` and any number of plain values. After a kill, lines of steps that will run again are cut off on
resume, so that the file reads as if the run had never been interrupted.

A line that cannot be read (torn by a kill, damaged on the disk) is passed over: a run does not end for want of its curve.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ingot.workspace.files import write_text


class MetricsLog:
    """Append-only JSONL with a cut for resuming."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, step: int, values: dict[str, Any]) -> None:
        """Write one line; a line is one `write` call, so a kill can only tear the last one."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step, **values}) + "\n")

    def read(self) -> list[dict[str, Any]]:
        """All lines that can be read."""
        return [row for row in self._lines() if row is not None]

    def cut(self, first_step: int) -> int:
        """Forget every line whose step is `first_step` or later, and those that cannot be read; returns how many these were."""
        if not self.path.exists():
            return 0
        rows = self._lines()
        kept = [row for row in rows if row is not None and row["step"] < first_step]
        write_text(self.path, "".join(json.dumps(row) + "\n" for row in kept))
        return rows.count(None)

    def _lines(self) -> list[dict[str, Any] | None]:
        """Every line, None for one that is no row."""
        if not self.path.exists():
            return []
        return [_row(line) for line in self.path.read_bytes().split(b"\n") if line.strip()]


def _row(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):  # ValueError: no JSON, or bytes that are no text
        return None
    return row if isinstance(row, dict) and isinstance(row.get("step"), int) else None


def metric_by_step(folder: Path, metric: str) -> dict[int, float]:
    """A metric of a stage by step, as far as it has been written."""
    rows = MetricsLog(folder / "metrics.jsonl").read()
    return {row["step"]: float(row[metric]) for row in rows if isinstance(row.get(metric), int | float)}
