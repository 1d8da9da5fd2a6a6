"""Tiny models and a browser, as in the tests of inference/ and report/."""

from __future__ import annotations

from tests.inference.conftest import model, one_thread  # noqa: F401
from tests.report.conftest import browser  # noqa: F401
