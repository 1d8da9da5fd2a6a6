"""Suggests the right name for a misspelt one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(word: str, names: Iterable[str]) -> str | None:
    """The name that `word` most likely means: spelt almost alike, or one is the initials of the other (`lr`)."""
    names = list(names)
    close = difflib.get_close_matches(word, names, n=1)
    if close:
        return close[0]
    short = [name for name in names if _initials(name) == word or _initials(word) == name]
    return short[0] if len(short) == 1 else None


def _initials(name: str) -> str:
    return "".join(part[:1] for part in name.split("_"))


def suggestion(word: str, names: Iterable[str], what: str = "known") -> str:
    """What to write instead of the unknown `word`: the nearest name, or the list of all."""
    names = list(names)
    right = nearest(word, names)
    if right is not None:
        return f"did you mean {right}?"
    return f"{what}: {', '.join(names)}" if names else f"{what}: none"
