"""IFEval's family `keywords`: words and letters that an answer must or must not hold, in any case.

Keywords are found as parts of words too, as published ("art" in "party"), while forbidden ones must stand alone.
"""

from __future__ import annotations

import re

from ingot.envs.verifiers.instructions.instruction import Relation, compare, instruction


@instruction("keywords:existence")
def existence(answer: str, keywords: list[str]) -> bool:
    """Every keyword occurs."""
    return all(re.search(re.escape(keyword), answer, re.IGNORECASE) for keyword in keywords)


@instruction("keywords:frequency")
def frequency(answer: str, keyword: str, frequency: int, relation: Relation) -> bool:
    """The keyword occurs less than, or at least, `frequency` times."""
    found = re.findall(re.escape(keyword.strip()), answer, re.IGNORECASE)
    return compare(len(found), relation, frequency)


@instruction("keywords:forbidden_words")
def forbidden_words(answer: str, forbidden_words: list[str]) -> bool:
    """None of the words occurs as a whole word."""
    return not any(re.search(rf"(?<!\w){re.escape(word)}(?!\w)", answer, re.IGNORECASE) for word in forbidden_words)


@instruction("keywords:letter_frequency")
def letter_frequency(answer: str, letter: str, let_frequency: int, let_relation: Relation) -> bool:
    """The character occurs less than, or at least, `let_frequency` times."""
    return compare(answer.lower().count(letter.strip().lower()), let_relation, let_frequency)
