"""Fixtures of the train room."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.making.stages import Listener, stage_folder


@pytest.fixture
def listener() -> Listener:
    return Listener()


@pytest.fixture
def folder(tmp_path: Path, listener: Listener) -> object:
    return stage_folder(tmp_path / "stage", listener)
