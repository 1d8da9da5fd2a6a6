"""Writes and reads the metrics of a stage: one JSON object a line, appended as the stage runs.

Each line has `step` and any number of plain values. After a kill, lines of steps that will run again are cut off on
resume, so that the file reads as if the run had never been interrupted.
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
        """All complete lines."""
        if not self.path.exists():
            return []
        rows = []
        for line in self.path.read_text(encoding="utf-8").split("\n"):
            if not line.strip():
                continue
            try:
                rows.append(json.loads(line))
            except json.JSONDecodeError:
                break  # the torn last line of a killed process: that step runs again
        return rows

    def cut(self, first_step: int) -> None:
        """Forget every line whose step is `first_step` or later."""
        if self.path.exists():
            kept = [row for row in self.read() if row["step"] < first_step]
            write_text(self.path, "".join(json.dumps(row) + "\n" for row in kept))
