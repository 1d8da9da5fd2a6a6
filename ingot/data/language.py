"""Is a text English? Scored by its function words and its letters.

    score = min(1, share of words that are English function words / 0.2)
            x min(1, distinct function words / 6)
            x share of letters that are a-z

A word is a run of letters, lower case. Words that are frequent in other languages too (`in`, `a`, `on`, `for`, `is`,
`as`, `was`) are not on the list; the second factor is there because one short word (`to`, `be`, `no`) may be frequent
anywhere. On the 529 versions of the Universal Declaration of Human Rights the threshold 0.5 lets through English and
three languages made of English words (Nigerian Pidgin, Scots, Jamaican Creole), and nothing else.
"""

from __future__ import annotations

import re

from ingot.data.config import LanguageStep
from ingot.data.document import Verdict

# fmt: off
FUNCTION_WORDS = frozenset([
    "the", "of", "and", "to", "that", "it", "with", "be", "this", "are", "or", "by", "from", "not", "have",
    "has", "which", "been", "were", "an", "at", "you", "we", "they", "their", "his", "her", "its", "if", "can",
    "will", "would", "should", "must", "may", "when", "then", "than", "there", "these", "those", "other", "any",
    "all", "each", "only", "such", "used", "using", "does", "do", "use", "return", "returns", "set", "more",
    "one", "no", "but", "so", "into", "out", "up", "about", "after", "before", "between", "both", "during",
    "through", "where", "who", "what", "how", "also", "because", "while", "until", "same", "without", "within",
    "under", "over", "against",
])
# fmt: on
FULL_SHARE = 0.2
FULL_DISTINCT = 6
WORD = re.compile(r"[^\W\d_]+")
LATIN = re.compile(r"[a-zA-Z]+")


def function_word_share(words: list[str]) -> float:
    """The share of `words` (lower case) that are English function words."""
    return sum(1 for word in words if word in FUNCTION_WORDS) / len(words) if words else 0.0


def english_score(text: str) -> float:
    """0 (not English) to 1."""
    words = WORD.findall(text.lower())
    letters = sum(map(len, words))
    if not letters:
        return 0.0
    latin = letters if text.isascii() else min(letters, sum(map(len, LATIN.findall(text))))
    distinct = len(FUNCTION_WORDS.intersection(words))
    return min(1.0, function_word_share(words) / FULL_SHARE) * min(1.0, distinct / FULL_DISTINCT) * latin / letters


def check_language(text: str, step: LanguageStep) -> Verdict:
    """Remove prose that does not score as English."""
    score = english_score(text)
    if score < step.min_english:
        return Verdict("English score", f"{score:.2f} < {step.min_english:g}")
    return Verdict(annotations={"english": round(score, 4)})
