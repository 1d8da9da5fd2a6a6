"""The form of a thinking answer: one closed block of thoughts, a summary at the end, and a budget that is kept.

The penalty for overlong answers is DAPO's (Yu et al. 2025, "DAPO", arXiv 2503.14476, equation 13), with the limit L and the
buffer B in tokens or words:

    0                  length ≤ L − B
    (L − B − length)/B in between
    −1                 length > L
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ingot.envs.verifiers.words import number_of_words
from ingot.envs.verify import MARK
from ingot.tokens.chat import Message
from ingot.tokens.tokenizer import THINK_END, THINK_START

_HEADING = re.compile(r"[#*\s]*summary\b[*\s]*:?[*\s]*(?P<text>.*)", re.IGNORECASE | re.DOTALL)


def split_thinking(text: str) -> tuple[str, str] | None:
    """(thoughts, answer) of text that begins with exactly one closed block and has no other mark of structure; else None."""
    opened, closed = text.lstrip().startswith(THINK_START), text.count(THINK_END) == 1
    if not opened or not closed or text.count(THINK_START) != 1:
        return None
    thoughts, _, answer = text.lstrip().removeprefix(THINK_START).partition(THINK_END)
    return None if MARK.search(thoughts + answer) else (thoughts, answer)


def keeps_budget(turn: Message, most: int, count: Callable[[str], int] = number_of_words) -> bool:
    """Whether the thoughts of a turn have at most so many words, or tokens if `count` counts those."""
    return count(turn.thinking or "") <= most


def overlong_penalty(length: int, limit: int, buffer: int) -> float:
    """DAPO's penalty, from 0 to -1; a buffer of 0 is a sharp limit."""
    if length <= limit - buffer:
        return 0.0
    return -1.0 if length > limit else (limit - buffer - length) / buffer


def summary_of(answer: str) -> str | None:
    """The text of the summary with which the answer ends: its last paragraph, headed "Summary"; None if there is none."""
    parts = [part.strip() for part in answer.strip().split("\n\n")]
    found = _HEADING.fullmatch(parts[-1])
    if found and found["text"].strip():
        return found["text"].strip()
    heading = _HEADING.fullmatch(parts[-2]) if len(parts) > 1 else None  # a heading on its own, then the paragraph
    return parts[-1] if heading and not heading["text"].strip() else None


def ends_with_summary(answer: str, most: int, count: Callable[[str], int] = number_of_words) -> bool:
    """Whether the answer ends with a summary of at most so many words, and says something before it."""
    summary = summary_of(answer)
    before = answer.strip().removesuffix(summary).strip() if summary else ""
    heading = _HEADING.fullmatch(before)
    return summary is not None and count(summary) <= most and bool(before) and heading is None
