"""Which variants of a test run in `make test`; the others run in `make test-all`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest


def first_fast(values: Sequence[Any], keep: int = 1) -> list[Any]:
    """The values of a parameter, all but the first `keep` marked slow: each variant proves the same of another kind.

    A tuple holds the values of several parameters.
    """
    return [value if at < keep else slow(value) for at, value in enumerate(values)]


def slow(value: Any) -> Any:
    return pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.slow)
