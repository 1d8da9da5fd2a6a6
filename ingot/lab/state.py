"""What an ablation remembers besides its runs: what it has cost, which runs were given up or failed, and what was predicted when.

    state.json    {"seconds", "flops", "pruned": {run: why}, "failed": {run: error}, "predicted": {arm: {"text", "at",
                  "results"}}}

A prediction is written down at the first call; a text that changes after the arm has a result is kept beside it as written late.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from ingot.workspace.files import read_json, write_json

STATE = "state.json"


@dataclass
class LabState:
    """The memory of an ablation."""

    seconds: float = 0.0  # of all its processes, over all calls
    flops: float = 0.0  # of the runs that it finished
    pruned: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    predicted: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def predict(self, arm: str, text: str, *, measured: bool) -> None:
        """Keep a prediction with its date, and whether a result was there when it was written."""
        known = self.predicted.setdefault(arm, [])
        if text and (not known or known[-1]["text"] != text):
            now = datetime.now().astimezone().isoformat(timespec="minutes")
            known.append({"text": text, "at": now, "late": measured})

    def write(self, folder: Path) -> None:
        """Write it whole."""
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / STATE, asdict(self))


def read_state(folder: Path) -> LabState:
    """The memory of the ablation in this folder; a fresh one if there is none."""
    return LabState(**read_json(folder / STATE)) if (folder / STATE).exists() else LabState()
