"""Fixtures of the model room."""

from __future__ import annotations

import pytest

from ingot.tokens.config import TokenizerConfig
from ingot.tokens.tokenizer import Tokenizer
from ingot.tokens.train_tokenizer import train_tokenizer


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    """Little more than the bytes."""
    return train_tokenizer(["the sum of the numbers is the sum. " * 20], TokenizerConfig(vocabulary_size=290))
