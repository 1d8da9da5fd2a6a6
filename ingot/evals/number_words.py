"""Whole numbers below 1,000 in English words, and back."""

from __future__ import annotations

import re

SMALL = (
    *(
        "zero",
        "one",
        "two",
        "three",
        "four",
        "five",
        "six",
        "seven",
        "eight",
        "nine",
        "ten",
        "eleven",
        "twelve",
        "thirteen",
    ),
    *("fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")


def words(number: int) -> str:
    """A number below 1,000 in English words."""
    if number < 20:
        return SMALL[number]
    if number < 100:
        return TENS[number // 10] + (f"-{SMALL[number % 10]}" if number % 10 else "")
    rest = f" and {words(number % 100)}" if number % 100 else ""
    return f"{SMALL[number // 100]} hundred{rest}"


SPELLED = {words(number): number for number in range(100)}
WORD = re.compile(rf"\b(?:{'|'.join(sorted(SPELLED, key=len, reverse=True))})\b", re.IGNORECASE)


def spelled_numbers(text: str) -> set[int]:
    """The numbers below 100 that a text has in words."""
    return {SPELLED[word.lower()] for word in WORD.findall(text)}
