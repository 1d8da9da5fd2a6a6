"""The Gopher rules written a second time, slowly and plainly, as the papers and datatrove describe them.

Shares no code with ingot.data.rules. Returns the name of the first broken rule, or "".
"""

from __future__ import annotations

import re
from collections import Counter
from fractions import Fraction

STOPS = {"the", "be", "to", "of", "and", "that", "have", "with"}


def quality(text: str) -> str:
    words = text.split()
    real = [word for word in words if any(character.isalnum() for character in word)]
    if len(real) < 50 or len(real) > 100_000:
        return "word count"
    mean = Fraction(sum(len(word) for word in real), len(real))
    if mean < 3 or mean > 10:
        return "mean word length"
    if text.count("#") / len(words) > 0.1:
        return "hash signs per word"
    if (text.count("...") + text.count("…")) / len(words) > 0.1:
        return "ellipses per word"
    lines = text.split("\n")
    bullets = [line for line in lines if re.match(r"\s*[•-]", line)]
    if len(bullets) / len(lines) > 0.9:
        return "bullet lines"
    trailing = [line for line in lines if re.search(r"(\.\.\.|…)\s*\Z", line)]
    if len(trailing) / len(lines) > 0.3:
        return "lines ending in an ellipsis"
    lettered = [word for word in words if any(character.isalpha() for character in word)]
    if len(lettered) / len(words) < 0.8:
        return "words with a letter"
    if len({word.lower() for word in words} & STOPS) < 2:
        return "distinct stop words"
    return ""


def seen_before(elements: list[str]) -> tuple[int, int]:
    seen: set[str] = set()
    count = characters = 0
    for element in elements:
        if element in seen:
            count += 1
            characters += len(element)
        seen.add(element)
    return count, characters


def repetition(text: str) -> str:
    if not text:
        return ""
    paragraphs = re.split(r"\n\n+", text.strip())
    count, characters = seen_before(paragraphs)
    if count / len(paragraphs) > 0.30:
        return "duplicate paragraphs"
    if characters / len(text) > 0.20:
        return "characters in duplicate paragraphs"
    lines = re.split(r"\n+", text)
    count, characters = seen_before(lines)
    if count / len(lines) > 0.30:
        return "duplicate lines"
    if characters / len(text) > 0.20:
        return "characters in duplicate lines"
    words = text.split()
    for size, limit in ((2, 0.20), (3, 0.18), (4, 0.16)):
        grams = [" ".join(words[start : start + size]) for start in range(len(words) - size + 1)]
        if grams:
            top, times = Counter(grams).most_common(1)[0]
            if len(top) * times / len(text) > limit:
                return f"characters in the most frequent {size}-gram"
    for size, limit in ((5, 0.15), (6, 0.14), (7, 0.13), (8, 0.12), (9, 0.11), (10, 0.10)):
        seen: set[str] = set()
        repeated = start = 0
        while start + size <= len(words):
            gram = " ".join(words[start : start + size])
            if gram in seen:
                repeated += len("".join(words[start : start + size]))
                start += size
            else:
                seen.add(gram)
                start += 1
        if repeated / len(text) > limit:
            return f"characters in duplicate {size}-grams"
    return ""
