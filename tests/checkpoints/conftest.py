"""Fixtures of the model room."""

from __future__ import annotations

from tests.model.conftest import one_thread, tokenizer  # noqa: F401
