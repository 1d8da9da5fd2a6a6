"""Wordings: a question as people type it, with or without its capital and its last mark."""

from __future__ import annotations

import random
from collections.abc import Sequence


def word(wordings: Sequence[str], rng: random.Random, *values: object) -> str:
    """One of the wordings with the values in its holes, half the time typed carelessly."""
    text = rng.choice(wordings)
    if rng.random() < 0.5:
        text = text[0].lower() + text[1:].rstrip("?.!")
    return text.format(*values)
