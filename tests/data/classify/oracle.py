"""Slow, plain versions of the formulas, with Python's own regular expressions: what the compiled ones must equal."""

from __future__ import annotations

import math
import re

from ingot.data.text.profile import ENGLISH

FUNCTION_WORDS = frozenset(ENGLISH)
WORD = re.compile(r"[^\W\d_]+")
LATIN = re.compile(r"[a-zA-Z]+")
SENTENCE_END = re.compile(r"[.?!:][\"'”’)\]*_`]*\s*$", re.MULTILINE)
EXPLANATION = re.compile(
    r'"""(?:[^\\]|\\.)*?"""|\'\'\'(?:[^\\]|\\.)*?\'\'\'|(?:^|[ \t])#[^\n]*', re.DOTALL | re.MULTILINE
)
STATEMENTS = "|".join(
    (
        r"(?:async\s+)?def\s+\w+\s*\(",
        r"class\s+\w+\s*[(:{]",
        r"(?:import\s+[\w.]+(?:\s+as\s+\w+)?(?:,.*)?$|from\s+[\w.]+\s+import\s)",
        r"(?:if|elif|for|while|with|except|else|try|finally)\b[^.?!]*:\s*(?:\#.*)?$",
        r"(?:return|raise|assert|yield|del|print|pass|break|continue)\b(?:\s*$|\s*[\w\[({\"'.]+\s*(?:$|[(\[.,+*/=<>-]))",
        r"(?:public|private|static|const|let|var|function|#include|\#define|using)\s+\S+.*[;{>)]\s*$",
        r"@\w[\w.]*(?:\(.*\))?\s*$",
        r"(?:>>>|\$)\s",
    )
)
CODE_LINE = re.compile(
    rf"^[ \t]*(?:{STATEMENTS}"
    r"|[\w.\[\]'\"]+(?:\s*,\s*[\w.\[\]'\"]+)*\s*(?:[-+*/|&%]?=)(?!=)\s*\S"
    r"|[\w.]+\([^\n]*\)[,;:]?\s*$"
    r"|[^\n]*[{};(\[]\s*$)"
)


def code_line_share(text: str) -> float:
    lines = [line for line in text.split("\n") if line.strip()]
    return sum(1 for line in lines if CODE_LINE.match(line)) / len(lines) if lines else 0.0


def function_word_share(words: list[str]) -> float:
    return sum(1 for word in words if word in FUNCTION_WORDS) / len(words) if words else 0.0


def english_score(text: str) -> float:
    words = WORD.findall(text.lower())
    letters = sum(map(len, words))
    if not letters:
        return 0.0
    latin = min(letters, sum(map(len, LATIN.findall(text))))
    distinct = len(FUNCTION_WORDS.intersection(words))
    return min(1.0, function_word_share(words) / 0.2) * min(1.0, distinct / 6) * latin / letters


def ramp(value: float, low: float, high: float) -> float:
    return min(1.0, max(0.0, (value - low) / (high - low)))


def letter_share(text: str, letters: int) -> float:
    visible = sum(map(len, text.split()))
    return letters / visible if visible else 0.0


def prose_quality(text: str) -> float:
    words = WORD.findall(text.lower())
    lines = [line for line in text.split("\n") if line.strip()]
    if not words or not lines:
        return 0.0
    parts = (
        ramp(sum(1 for line in lines if SENTENCE_END.search(line)) / len(lines), 0, 0.6),
        ramp(function_word_share(words), 0, 0.35),
        ramp(letter_share(text, sum(map(len, words))), 0.6, 0.85),
        ramp(math.log2(len(words)), math.log2(50), math.log2(1600)),
    )
    return sum(parts) / 4


def code_quality(text: str) -> float:
    lines = [line for line in text.split("\n") if line.strip()]
    if not lines:
        return 0.0
    parts = (
        ramp(sum(map(len, EXPLANATION.findall(text))) / len(text), 0, 0.25),
        ramp(sum(len(line) <= 100 for line in lines) / len(lines), 0.9, 1),
        ramp(letter_share(text, sum(map(len, WORD.findall(text.lower())))), 0.5, 0.75),
        ramp(math.log2(len(lines)), math.log2(8), math.log2(256)),
    )
    return sum(parts) / 4
