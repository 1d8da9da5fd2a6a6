"""Fixtures for all rooms."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest

# Read by OpenMP when torch is loaded. Threads that spin while they wait take the core from the other test process: a team of
# two that shares two cores with it would be ten times slower.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

SHARED_DATA = Path(__file__).resolve().parents[1].parent / "shared" / "data"


@pytest.fixture(scope="module", autouse=True)
def _quick_collections() -> None:
    """Garbage collections pass over what lives already, the imported libraries above all.

    The trainer collects twice in every run; over the million objects of torch and transformers that takes half a second.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data beside the repository."""
    if not SHARED_DATA.is_dir():
        pytest.skip("needs the real data in ../shared/data beside the repository")
    return SHARED_DATA
