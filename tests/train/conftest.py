"""Fixtures of the train room."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.train.toy import Listener, stage_folder


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Tiny products are slower on more threads."""
    torch.set_num_threads(1)


@pytest.fixture
def listener() -> Listener:
    return Listener()


@pytest.fixture
def folder(tmp_path: Path, listener: Listener) -> object:
    return stage_folder(tmp_path / "stage", listener)
