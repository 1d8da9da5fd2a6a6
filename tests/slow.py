"""Which variants of a test run in `make test`; the others run in `make test-all`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest


def first_fast(values: Sequence[Any], keep: int = 1) -> list[Any]:
    """The values of a parameter, all but the first `keep` marked slow: each variant proves the same of another kind."""
    return [value if at < keep else pytest.param(value, marks=pytest.mark.slow) for at, value in enumerate(values)]
