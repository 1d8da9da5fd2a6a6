"""The leaderboard's services set the precision of decimal numbers for the whole thread: here it comes back after each test."""

from __future__ import annotations

import decimal
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _own_precision() -> Iterator[None]:
    with decimal.localcontext():
        yield
