"""Checks that answers of several tasks must pass: length, numbers that must survive, words copied.

A check is cheap and certain; it cannot see every mistake. What it refuses is counted with its reason.
"""

from __future__ import annotations

import re

from ingot.data.synthesize.sample import Refused

RULES = "Keep every fact, name and number. Add nothing that the text does not say. Write only the new text, no remarks about it."
NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
PREAMBLE = re.compile(r"^(?:sure|certainly|of course|here(?:'s| is| are))\b[^\n]{0,120}:\s*\n+", re.IGNORECASE)
REFUSAL = re.compile(r"^(?:i(?:'m| am) sorry|sorry, (?:but )?i|i can(?:no|')t|as an ai)\b", re.IGNORECASE)
COPIED_WORDS = 8


def cleaned(answer: str) -> str:
    """The answer without an introduction of itself; no answer and a refusal are refused."""
    text = PREAMBLE.sub("", answer.strip()).strip()
    if not text:
        raise Refused("empty")
    if REFUSAL.match(text):
        raise Refused("declined")
    return text


def check_length(found: int, given: int, lowest: float, highest: float) -> None:
    """Refuse answers that are too short or too long for what was given."""
    if found < lowest * given:
        raise Refused("too short")
    if found > highest * given:
        raise Refused("too long")


def check_numbers(given: str, text: str, share: float) -> None:
    """Refuse answers that lost numbers; 1,000 and 1000 and 1.000 are the same (translations change the marks)."""
    wanted = {re.sub(r"[.,]", "", number) for number in NUMBER.findall(given)}
    found = {re.sub(r"[.,]", "", number) for number in NUMBER.findall(text)}
    if wanted and len(wanted & found) < share * len(wanted):
        raise Refused("numbers lost")


def copied(given: str, text: str) -> float:
    """Share of the text's 8-grams of lower-case words that stand in the given text."""
    source, words = given.lower().split(), text.lower().split()
    known = {tuple(source[at : at + COPIED_WORDS]) for at in range(len(source) - COPIED_WORDS + 1)}
    grams = [tuple(words[at : at + COPIED_WORDS]) for at in range(len(words) - COPIED_WORDS + 1)]
    return sum(gram in known for gram in grams) / len(grams) if grams else 0.0
