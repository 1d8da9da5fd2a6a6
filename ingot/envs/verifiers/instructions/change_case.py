"""IFEval's family `change_case`: capitals and small letters. The published checkers ask for English as well."""

from __future__ import annotations

from ingot.envs.verifiers.instructions.instruction import Relation, compare, instruction
from ingot.envs.verifiers.text.language import in_language
from ingot.envs.verifiers.text.words import words


@instruction("change_case:capital_word_frequency")
def capital_word_frequency(answer: str, capital_frequency: int, capital_relation: Relation) -> bool:
    """Less than, or at least, so many words in capitals."""
    return compare(sum(word.isupper() for word in words(answer.replace(",", " "))), capital_relation, capital_frequency)


@instruction("change_case:english_capital")
def english_capital(answer: str) -> bool:
    """English in capitals only."""
    return answer.isupper() and in_language(answer, "en")


@instruction("change_case:english_lowercase")
def english_lowercase(answer: str) -> bool:
    """English without capitals."""
    return answer.islower() and in_language(answer, "en")
