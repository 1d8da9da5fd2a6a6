"""Fixtures for all rooms."""

from __future__ import annotations

from pathlib import Path

import pytest

SHARED_DATA = Path(__file__).resolve().parents[1].parent / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data beside the repository."""
    if not SHARED_DATA.is_dir():
        pytest.skip("needs the real data in ../shared/data beside the repository")
    return SHARED_DATA
