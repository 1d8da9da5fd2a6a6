"""Tiny models, as in the tests of inference/."""

from __future__ import annotations

from tests.inference.conftest import model  # noqa: F401
