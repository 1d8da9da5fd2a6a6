"""The folder of a stage, and a progress that remembers."""

from __future__ import annotations

from pathlib import Path

from ingot.workspace.progress import Progress
from ingot.workspace.stage import StageFolder


class Listener(Progress):
    """Keeps what was said."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)


def stage_folder(path: Path, progress: Progress | None = None, seed: int = 1) -> StageFolder:
    """Make a stage's folder, as a flow gives it to the stage."""
    path.mkdir(parents=True, exist_ok=True)
    return StageFolder(path, seed, progress or Progress())
