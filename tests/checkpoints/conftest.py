"""Fixtures of the model room."""

from __future__ import annotations

from tests.model.conftest import tokenizer  # noqa: F401
