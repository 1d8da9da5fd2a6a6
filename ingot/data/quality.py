"""A quality score in [0, 1] for every document: later stages train on the better ones last.

Prose, the mean of four parts that are each full at what good running text reaches:
    sentences    share of non-empty lines that end in . ? ! : or a closing quote or bracket after them   / 0.6
    language     share of words that are English function words                                         / 0.35
    letters      share of the non-space characters that are letters, from 0.6                            to 0.85
    length       log2 of the number of words, from 50                                                   to 1600

Code, the mean of four:
    explained    share of the characters in comments and docstrings                                      / 0.25
    lines        share of non-empty lines of at most 100 characters, from 0.9                            to 1
    names        share of the non-space characters that are letters, from 0.5                            to 0.75
    length       log2 of the number of lines, from 8                                                    to 256

It is a plain formula, not a learned classifier: it orders documents of one kind, its values mean nothing across kinds.
"""

from __future__ import annotations

import math
import re

from ingot.data.config import QualityStep
from ingot.data.document import Verdict
from ingot.data.language import WORD, function_word_share

SENTENCE_END = re.compile(r"[.?!:][\"'”’)\]*_`]*\s*$", re.MULTILINE)
EXPLANATION = re.compile(
    r'"""(?:[^\\]|\\.)*?"""|\'\'\'(?:[^\\]|\\.)*?\'\'\'|(?:^|[ \t])#[^\n]*', re.DOTALL | re.MULTILINE
)


def ramp(value: float, low: float, high: float) -> float:
    """0 up to `low`, 1 from `high`, straight between."""
    return min(1.0, max(0.0, (value - low) / (high - low)))


def letter_share(text: str, letters: int) -> float:
    """Letters over characters that are not white space."""
    visible = sum(map(len, text.split()))
    return letters / visible if visible else 0.0


def prose_quality(text: str) -> float:
    """The score of prose."""
    words = WORD.findall(text.lower())
    lines = [line for line in text.split("\n") if line.strip()]
    if not words or not lines:
        return 0.0
    ended = sum(1 for line in lines if SENTENCE_END.search(line)) / len(lines)
    parts = (
        ramp(ended, 0, 0.6),
        ramp(function_word_share(words), 0, 0.35),
        ramp(letter_share(text, sum(map(len, words))), 0.6, 0.85),
        ramp(math.log2(len(words)), math.log2(50), math.log2(1600)),
    )
    return sum(parts) / len(parts)


def code_quality(text: str) -> float:
    """The score of code."""
    lines = [line for line in text.split("\n") if line.strip()]
    if not lines:
        return 0.0
    parts = (
        ramp(sum(map(len, EXPLANATION.findall(text))) / len(text), 0, 0.25),
        ramp(sum(len(line) <= 100 for line in lines) / len(lines), 0.9, 1),
        ramp(letter_share(text, sum(map(len, WORD.findall(text)))), 0.5, 0.75),
        ramp(math.log2(len(lines)), math.log2(8), math.log2(256)),
    )
    return sum(parts) / len(parts)


def score_prose(text: str, step: QualityStep) -> Verdict:
    """Annotate prose with its score; remove it below the minimum."""
    return verdict_of(prose_quality(text), step)


def score_code(text: str, step: QualityStep) -> Verdict:
    """Annotate code with its score; remove it below the minimum."""
    return verdict_of(code_quality(text), step)


def verdict_of(score: float, step: QualityStep) -> Verdict:
    """The verdict on a score."""
    if score < step.minimum:
        return Verdict("score", f"{score:.2f} < {step.minimum:g}")
    return Verdict(annotations={"quality": round(score, 4)})
