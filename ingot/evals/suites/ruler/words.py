"""Counting words: the ten most common of a numbered list, and the three most frequent of a coded text.

common     10 words 30 times each among others 3 times each (6 and once below 4,096 tokens), one worked example
frequent   six random letters each; word number k of the ranking comes in proportion to k^-2, the first is "..."
"""

from __future__ import annotations

import math
import random
import string
from collections.abc import Sequence

from ingot.evals.suites.ruler.sample import PromptBudget, RulerSample, bisect, draw, too_short
from ingot.evals.suites.ruler.vocabulary import word_list
from ingot.workspace.errors import RecipeError

COMMON = (
    "Below is a numbered list of words. In these words, some appear more often than others. Memorize the ones that appear "
    "most often.\n{context}\nQuestion: What are the 10 most common words in the above list?"
)
COMMON_START = "Answer: The top 10 words that appear most often in the list are:"
ANSWERS = 10
PROBE = 4096  # words of the list by which the tokens of a word are estimated
COMMON_STEP = 10

FREQUENT = (
    "Read the following coded text and track the frequency of each coded word. Find the three most frequently appeared coded "
    "words. {context}\nQuestion: Do not provide any explanation. Please ignore the dots '....'. What are the three most "
    "frequently appeared words in the above coded text?"
)
FREQUENT_START = "Answer: According to the coded text above, the three most frequently appeared words are:"
LETTERS, EXPONENT = 6, 2.0
ZETA = math.pi**2 / 6  # of the exponent: the sum of k^-2


class CommonWords:
    """The task `cwe`."""

    def samples(self, room: PromptBudget, count: int, seed: int) -> list[RulerSample]:
        """So many samples."""
        rng = random.Random(seed)
        words = sorted({*word_list("noun"), *word_list("adjective"), *word_list("verb")})
        random.Random(seed).shuffle(words)
        short = room.short

        def listed(size: int, often: int, seldom: int) -> tuple[str, list[str]]:
            if size > len(words):
                raise RecipeError(
                    f"a list for {room.length} tokens takes more than the {len(words)} words that there are",
                    place="suite ruler, task cwe",
                    fix="measure shorter lengths",
                )
            chosen = rng.sample(words, size)
            every = chosen[:ANSWERS] * often + chosen[ANSWERS:] * seldom
            random.Random(seed).shuffle(every)
            return numbered(every), chosen[:ANSWERS]

        def make(size: int) -> RulerSample:
            shown, right = listed(20, 3, 1) if short else listed(40, 10, 3)
            context, answers = listed(size, 6, 1) if short else listed(size, 30, 3)
            shot = f"{COMMON.format(context=shown)} {COMMON_START} {numbered(right)}"
            return RulerSample(f"{shot}\n{COMMON.format(context=context)}", COMMON_START, tuple(answers))

        tokens_each = room.count(make(PROBE).whole) / PROBE
        most = min(int(room.usable // tokens_each) * 2, len(words))
        size = bisect(make, room, COMMON_STEP, most)
        return [draw(make, room, size, COMMON_STEP) for _ in range(count)]


class FrequentWords:
    """The task `fwe`."""

    def samples(self, room: PromptBudget, count: int, seed: int) -> list[RulerSample]:
        """So many samples; the number of words is found by going up and down in steps, as RULER does."""
        rng = random.Random(seed)
        tokens = room.usable - room.answer
        step, kinds = tokens // 32, tokens // 50
        if step < 1 or kinds < 4:
            raise too_short(room)
        words = coded_words(rng, kinds, seed)
        size = tokens // LETTERS
        while room.count(coded(words, size, seed).whole) < tokens:
            size += step
        size -= step
        return [self._sample(room, tokens, coded_words(rng, kinds, seed), size, step, seed) for _ in range(count)]

    def _sample(
        self, room: PromptBudget, tokens: int, words: Sequence[str], size: int, step: int, seed: int
    ) -> RulerSample:
        while size > 0:
            sample = coded(words, size, seed)
            if room.count(sample.whole) <= tokens:
                return sample
            size -= step
        raise too_short(room)


def numbered(words: Sequence[str]) -> str:
    """`1. word 2. other`."""
    return " ".join(f"{number}. {word}" for number, word in enumerate(words, 1))


def coded_words(rng: random.Random, count: int, seed: int) -> list[str]:
    """Made-up words by rank, of which the first is noise."""
    found = [_word(rng) for _ in range(count)]
    while len(set(found)) < count:
        found.append(_word(rng))
    words = sorted(set(found))
    random.Random(seed).shuffle(words)
    return ["...", *words[1:]]


def coded(words: Sequence[str], size: int, seed: int) -> RulerSample:
    """A text of about `size` such words."""
    import numpy

    ranks = numpy.arange(1, len(words) + 1)
    counts = (size * (ranks**-EXPONENT) / ZETA).astype(int)
    every = [word for word, often in zip(words, counts.tolist(), strict=True) for _ in range(often)]
    random.Random(seed).shuffle(every)
    return RulerSample(FREQUENT.format(context=" ".join(every)), FREQUENT_START, tuple(words[1:4]))


def _word(rng: random.Random) -> str:
    return "".join(rng.choices(string.ascii_lowercase, k=LETTERS))
