"""Fixtures of the data room."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ingot.workspace.stage import StageFolder
from tests.making import stages
from tests.making.rows import read_rows
from tests.making.stages import Listener


@pytest.fixture
def recorder() -> Listener:
    return Listener()


@pytest.fixture
def stage_folder(tmp_path: Path, recorder: Listener) -> StageFolder:
    return stages.stage_folder(tmp_path / "stage", recorder)


@pytest.fixture(scope="session")
def rows_of(shared_data: Path) -> Callable[[str], list[dict[str, Any]]]:
    """The rows of a file of the shared data."""

    def read(name: str) -> list[dict[str, Any]]:
        return read_rows(shared_data / name)

    return read
