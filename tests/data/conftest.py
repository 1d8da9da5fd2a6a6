"""Fixtures of the data room."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ingot.workspace.progress import Progress
from ingot.workspace.stage import StageFolder


class Recorder(Progress):
    """Progress that remembers what was said."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def stage_folder(tmp_path: Path, recorder: Recorder) -> StageFolder:
    path = tmp_path / "stage"
    path.mkdir()
    return StageFolder(path=path, seed=1, progress=recorder)


@pytest.fixture(scope="session")
def rows_of(shared_data: Path) -> Callable[[str], list[dict[str, Any]]]:
    """The rows of a file of the shared data."""

    def read(name: str) -> list[dict[str, Any]]:
        with gzip.open(shared_data / name, "rt", encoding="utf-8", newline="\n") as lines:
            return [json.loads(line) for line in lines]

    return read
