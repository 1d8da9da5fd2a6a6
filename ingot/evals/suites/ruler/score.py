"""How answers of RULER are scored: by whether they contain the references, whatever their case.

A question may be answered in several ways, so one reference is enough there; in all other tasks every reference counts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

CONTROL = re.compile(r"[\x00-\x1f]")


def contained(answer: str, references: Sequence[str]) -> list[bool]:
    """For each reference whether the answer contains it; control characters are line ends."""
    text = CONTROL.sub("\n", answer.strip()).strip().lower()
    return [reference.lower() in text for reference in references]


def share_contained(answer: str, references: Sequence[str]) -> float:
    """The share of references that the answer contains."""
    return sum(contained(answer, references)) / len(references)


def any_contained(answer: str, references: Sequence[str]) -> float:
    """1 if the answer contains a reference."""
    return float(any(contained(answer, references)))
