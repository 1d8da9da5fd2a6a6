"""Fixtures of the optim room."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Tiny products are slower on more threads."""
    torch.set_num_threads(1)
