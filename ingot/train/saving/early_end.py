"""A request that a training stage end before its last step, left in its folder by a process that watches it.

    STAGE/end_early.json     {"why": "hellaswag/accuracy is no better since step 4,000", "step": 6000}

The trainer looks for it whenever it saves a checkpoint. It ends the stage there and notes the step: the weights of that step are
the result, and what comes after the stage goes on from them. `ingot eval follow --stop-metric` leaves such requests (early
stopping).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ingot.workspace.files import read_json, write_json

END_EARLY = "end_early.json"


def ask_to_end(stage: Path, why: str) -> None:
    """Ask the stage in this folder to end at its next checkpoint."""
    if not (stage / END_EARLY).exists():
        write_json(stage / END_EARLY, {"why": why})


def why_end(stage: Path) -> str | None:
    """Why the stage is asked to end; None if it is not."""
    found = _request(stage)
    return None if found is None else str(found.get("why", "no reason is given"))


def note_end(stage: Path, step: int) -> None:
    """Note that the stage ends after `step` steps."""
    write_json(stage / END_EARLY, {**(_request(stage) or {}), "step": step})


def ended_at(stage: Path) -> int | None:
    """After how many steps the stage ended early; None if it did not."""
    found = _request(stage)
    return None if found is None or "step" not in found else int(found["step"])


def _request(stage: Path) -> dict[str, Any] | None:
    path = stage / END_EARLY
    return dict(read_json(path)) if path.exists() else None
