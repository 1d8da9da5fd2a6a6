"""IFBench's family `sentence`: how each sentence follows on the one before."""

from __future__ import annotations

import re
from itertools import groupby, pairwise

from ingot.envs.verifiers.instructions.instruction import Position, instruction
from ingot.envs.verifiers.text.words import STRIP_PUNCTUATION, sentences, words


@instruction("sentence:alliteration_increment")
def alliteration_increment(answer: str) -> bool:
    """Each sentence has a longer run of words with the same first letter than the one before."""
    runs = [_longest_run(sentence) for sentence in sentences(answer)]
    return all(before < after for before, after in pairwise(runs))


@instruction("sentence:increment")
def increment(answer: str, small_n: int) -> bool:
    """Each sentence has exactly so many words more than the one before."""
    lengths = [len(sentence.translate(STRIP_PUNCTUATION).split()) for sentence in sentences(answer)]
    return all(after == before + small_n for before, after in pairwise(lengths))


@instruction("sentence:keyword")
def keyword(answer: str, word: str, N: Position) -> bool:
    """The word stands in sentence N, in any case."""
    found = sentences(answer)
    pattern = rf"(?<!\w){re.escape(word)}(?!\w)"
    return len(found) >= N and re.search(pattern, found[N - 1], re.IGNORECASE) is not None


def _longest_run(sentence: str) -> int:
    initials = [word[0] for word in words(sentence.lower())]
    return max((len(list(run)) for _, run in groupby(initials)), default=0)
