"""The rules of Gopher for prose: quality and repetition (Rae et al. 2021, appendix A.1).

Words are whitespace words (`text.split()`). This decides the outcome: with a tokenizer that makes punctuation a word of
its own the same thresholds remove several times as much. Lines end in "\\n".

Quality: a word counts for length and number if it holds a letter or digit; the other ratios are over all words. Stop
words are compared in lower case, with the punctuation that touches them.

Repetition, as datatrove counts it: duplicates are occurrences after the first; characters are over the length of the
text; paragraphs are split at two or more newlines, lines at one or more. The most frequent n-gram is joined with
spaces and counted len x occurrences (the first one among equals, also if it occurs once). Duplicate n-grams are found
from left to right without overlap: after a hit the search jumps over it, and only n-grams it stepped on are
remembered; their characters are counted without spaces.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from ingot.data.config import GopherQualityStep, GopherRepetitionStep
from ingot.data.document import KEEP, Verdict

STOP_WORDS = frozenset(("the", "be", "to", "of", "and", "that", "have", "with"))
ELLIPSES = ("...", "…")
BULLETS = ("•", "-")
PARAGRAPH_BREAK = re.compile(r"\n{2,}")
LINE_BREAK = re.compile(r"\n+")


def gopher_quality(text: str, step: GopherQualityStep) -> Verdict:
    """The first rule of Gopher quality that the text breaks, or keep."""
    words = text.split()
    lengths = [len(word) for word in words if word.isalnum() or any(map(str.isalnum, word))]
    if len(lengths) < step.min_words or not words:
        return Verdict("word count", f"{len(lengths)} < {step.min_words}")
    if len(lengths) > step.max_words:
        return Verdict("word count", f"{len(lengths)} > {step.max_words}")
    mean_length = sum(lengths) / len(lengths) if lengths else 0.0
    if mean_length < step.min_mean_word_length:
        return Verdict("mean word length", f"{mean_length:.1f} < {step.min_mean_word_length:g}")
    if mean_length > step.max_mean_word_length:
        return Verdict("mean word length", f"{mean_length:.1f} > {step.max_mean_word_length:g}")

    hashes = text.count("#") / len(words)
    if hashes > step.max_hashes_per_word:
        return Verdict("hash signs per word", f"{hashes:.2f} > {step.max_hashes_per_word:g}")
    ellipses = sum(map(text.count, ELLIPSES)) / len(words)
    if ellipses > step.max_ellipses_per_word:
        return Verdict("ellipses per word", f"{ellipses:.2f} > {step.max_ellipses_per_word:g}")

    lines = text.split("\n")
    bullets = sum(line.lstrip().startswith(BULLETS) for line in lines) / len(lines)
    if bullets > step.max_bullet_lines:
        return Verdict("bullet lines", f"{bullets:.1%} > {step.max_bullet_lines:.0%}")
    trailing = sum(line.rstrip().endswith(ELLIPSES) for line in lines) / len(lines)
    if trailing > step.max_ellipsis_lines:
        return Verdict("lines ending in an ellipsis", f"{trailing:.1%} > {step.max_ellipsis_lines:.0%}")

    with_letter = sum(word.isalpha() or any(map(str.isalpha, word)) for word in words) / len(words)
    if with_letter < step.min_letter_words:
        return Verdict("words with a letter", f"{with_letter:.1%} < {step.min_letter_words:.0%}")
    stop_words = len(STOP_WORDS.intersection(map(str.lower, words)))
    if stop_words < step.min_stop_words:
        return Verdict("distinct stop words", f"{stop_words} < {step.min_stop_words}")
    return Verdict(annotations={"words": len(words)})


def gopher_repetition(text: str, step: GopherRepetitionStep) -> Verdict:
    """The first rule of Gopher repetition that the text breaks, or keep."""
    if not text:
        return KEEP
    for name, elements, max_share, max_characters in (
        (
            "paragraph",
            PARAGRAPH_BREAK.split(text.strip()),
            step.max_duplicate_paragraphs,
            step.max_duplicate_paragraph_characters,
        ),
        ("line", LINE_BREAK.split(text), step.max_duplicate_lines, step.max_duplicate_line_characters),
    ):
        count, characters = duplicates(elements)
        if count / len(elements) > max_share:
            return Verdict(f"duplicate {name}s", f"{count / len(elements):.1%} > {max_share:.0%}")
        if characters / len(text) > max_characters:
            return Verdict(f"characters in duplicate {name}s", f"{characters / len(text):.1%} > {max_characters:.0%}")

    words = text.split()
    for size, limit in sorted(step.max_top_ngram_characters.items()):
        share = top_ngram_characters(words, size) / len(text)
        if share > limit:
            return Verdict(f"characters in the most frequent {size}-gram", f"{share:.1%} > {limit:.0%}")
    limits = sorted(step.max_duplicate_ngram_characters.items())
    if limits and repeated_characters(words, limits[0][0]) / len(text) <= min(limit for _, limit in limits):
        return KEEP  # the bound for all sizes: most texts are done after one pass instead of six
    for size, limit in limits:
        share = duplicate_ngram_characters(words, size) / len(text)
        if share > limit:
            return Verdict(f"characters in duplicate {size}-grams", f"{share:.1%} > {limit:.0%}")
    return KEEP


def duplicates(elements: Sequence[str]) -> tuple[int, int]:
    """How many elements were seen before, and their characters."""
    counts = Counter(elements)
    if len(counts) == len(elements):
        return 0, 0
    repeated = [(element, count - 1) for element, count in counts.items() if count > 1]
    return sum(count for _, count in repeated), sum(len(element) * count for element, count in repeated)


def top_ngram_characters(words: list[str], size: int) -> int:
    """Length of the most frequent n-gram, joined with spaces, times its count."""
    if len(words) < size:
        return 0
    ngram, count = Counter(zip(*(words[start:] for start in range(size)), strict=False)).most_common(1)[0]
    return (sum(map(len, ngram)) + size - 1) * count


def repeated_characters(words: list[str], size: int) -> int:
    """Characters in the union of all n-grams that occurred before.

    An upper bound of `duplicate_ngram_characters` for this size and every larger one: if a longer n-gram occurred
    before, so did each n-gram of this size in it.
    """
    seen: set[tuple[str, ...]] = set()
    characters = end = 0
    for position, ngram in enumerate(zip(*(words[start:] for start in range(size)), strict=False)):
        if ngram in seen:
            characters += sum(map(len, words[max(position, end) : position + size]))
            end = position + size
        else:
            seen.add(ngram)
    return characters


def duplicate_ngram_characters(words: list[str], size: int) -> int:
    """Characters in n-grams that occurred before, found from left to right without overlap."""
    ngrams = list(zip(*(words[start:] for start in range(size)), strict=False))
    seen: set[tuple[str, ...]] = set()
    characters = position = 0
    while position < len(ngrams):
        ngram = ngrams[position]
        if ngram in seen:
            characters += sum(map(len, ngram))
            position += size
        else:
            seen.add(ngram)
            position += 1
    return characters
