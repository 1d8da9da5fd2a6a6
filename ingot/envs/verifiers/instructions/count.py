"""IFBench's family `count`: how many words, names, numbers or marks an answer holds. Parameters have their published names."""

from __future__ import annotations

import re

from ingot.envs.verifiers.instructions.instruction import Position, instruction
from ingot.envs.verifiers.text.words import OUTER, STRIP_PUNCTUATION, WORD, number_of_words, word_set, words

_CONJUNCTIONS = frozenset({"and", "but", "for", "nor", "or", "so", "yet"})
_NAMES = word_set("""
    Emma Liam Sophia Jackson Olivia Noah Ava Lucas Isabella Mason Mia Ethan Charlotte Alexander Amelia Benjamin Harper Leo Zoe
    Daniel Chloe Samuel Lily Matthew Grace Owen Abigail Gabriel Ella Jacob Scarlett Nathan Victoria Elijah Layla Nicholas
    Audrey David Hannah Christopher Penelope Thomas Nora Andrew Aria Joseph Claire Ryan Stella Jonathan
""")
_PRONOUNS = word_set("""
    i me we us you he him she her it they them my mine our ours your yours his hers its their theirs
    myself ourselves yourself yourselves himself herself itself themselves this that these those
    who whom whose which what whoever whomever whatever whichever anybody anyone anything everybody everyone everything
    nobody nothing somebody someone something each either neither both all some any none
""")
_JAPANESE = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff]")  # hiragana, katakana and the common kanji
_INTERROBANGS = ("?!", "!?", "‽")
_MARKS = ".,!?;:"


@instruction("count:word_count_range")
def word_count_range(answer: str, min_words: int, max_words: int) -> bool:
    """Between `min_words` and `max_words` words, both included."""
    return min_words <= number_of_words(answer) <= max_words


@instruction("count:unique_word_count")
def unique_word_count(answer: str, N: int) -> bool:
    """At least N different words."""
    return len(set(words(answer.lower()))) >= N


@instruction("count:conjunctions")
def conjunctions(answer: str, small_n: int) -> bool:
    """At least so many of the seven coordinating conjunctions."""
    return len(_CONJUNCTIONS.intersection(words(answer.lower()))) >= small_n


@instruction("count:person_names")
def person_names(answer: str, N: int) -> bool:
    """At least N of the fifty names that the prompt lists."""
    return len(set(WORD.findall(answer)).intersection(_NAMES)) >= N


@instruction("count:numbers")
def numbers(answer: str, N: int) -> bool:
    """Exactly N numbers in digits; 1,234.5 is one."""
    return len(re.findall(r"\d+", answer.translate(STRIP_PUNCTUATION))) == N


@instruction("count:punctuation")
def punctuation(answer: str) -> bool:
    """An interrobang and, besides it, each of the marks . , ! ? ; and :."""
    interrobang = next((mark for mark in _INTERROBANGS if mark in answer), None)
    return interrobang is not None and all(mark in answer.replace(interrobang, "", 1) for mark in _MARKS)


@instruction("count:words_japanese")
def words_japanese(answer: str, N: Position) -> bool:
    """Every Nth word is Japanese; numbers may stand there too."""
    every_nth = [piece.strip(OUTER) for piece in answer.split()[N - 1 :: N]]
    return all(word.isdigit() or _JAPANESE.search(word) for word in every_nth if word)


@instruction("count:pronouns")
def pronouns(answer: str, N: int) -> bool:
    """At least N pronouns; the word before an apostrophe counts ("it's")."""
    return sum(word in _PRONOUNS for word in WORD.findall(answer.lower())) >= N


@instruction("count:keywords_multiple")
def keywords_multiple(answer: str, keyword1: str, keyword2: str, keyword3: str, keyword4: str, keyword5: str) -> bool:
    """The keywords occur exactly once, twice, three, five and seven times, in any case and as parts of words too."""
    keywords = zip((keyword1, keyword2, keyword3, keyword4, keyword5), (1, 2, 3, 5, 7), strict=True)
    return all(answer.lower().count(keyword.strip().lower()) == times for keyword, times in keywords)
