"""IFEval's family `length_constraints`: numbers of words, sentences and paragraphs."""

from __future__ import annotations

import re

from ingot.envs.verifiers.instructions.instruction import Position, Relation, compare, instruction
from ingot.envs.verifiers.text.words import number_of_words, sentences
from ingot.envs.verifiers.text.words import paragraphs as split_paragraphs

_FIRST_WORD = re.compile(r"""['"]*([^.,?!'"\s]*)""")


@instruction("length_constraints:number_words")
def number_words(answer: str, num_words: int, relation: Relation) -> bool:
    """Less than, or at least, so many words."""
    return compare(number_of_words(answer), relation, num_words)


@instruction("length_constraints:number_sentences")
def number_sentences(answer: str, num_sentences: int, relation: Relation) -> bool:
    """Less than, or at least, so many sentences."""
    return compare(len(sentences(answer)), relation, num_sentences)


@instruction("length_constraints:number_paragraphs")
def number_paragraphs(answer: str, num_paragraphs: int) -> bool:
    """Exactly so many paragraphs between markdown's divider ***; a divider may open or close the answer."""
    parts = [part.strip() for part in answer.split("***")]
    return all(parts[1:-1]) and sum(map(bool, parts)) == num_paragraphs


@instruction("length_constraints:nth_paragraph_first_word")
def nth_paragraph_first_word(answer: str, num_paragraphs: int, nth_paragraph: Position, first_word: str) -> bool:
    """Exactly so many paragraphs between blank lines, of which the nth begins with the word, in any case."""
    found = split_paragraphs(answer)
    if len(found) != num_paragraphs or nth_paragraph > num_paragraphs:
        return False
    begin = _FIRST_WORD.match(found[nth_paragraph - 1].strip())
    return begin is not None and begin[1].lower() == first_word.lower()
