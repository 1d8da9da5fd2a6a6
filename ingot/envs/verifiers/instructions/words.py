"""IFBench's family `words`: the letters, lengths and order of the words of an answer."""

from __future__ import annotations

import re
from collections import Counter
from itertools import groupby, pairwise
from string import ascii_lowercase

from ingot.envs.verifiers.errors import VerifierError
from ingot.envs.verifiers.instructions.instruction import Position, instruction
from ingot.envs.verifiers.text.words import STRIP_PUNCTUATION, sentences, words
from ingot.workspace.packages import install_extra, pip_install

_CONSONANTS = re.compile(r"[bcdfghjklmnpqrstvwxyz]{2}")
_PRIMES = frozenset(n for n in range(2, 100) if all(n % factor for factor in range(2, n)))


@instruction("words:alphabet")
def alphabet(answer: str) -> bool:
    """Each word begins with the next letter of the alphabet; a follows z."""
    initials = [word[0] for word in _plain_words(answer)]
    if not initials or initials[0] not in ascii_lowercase:
        return False
    first = ascii_lowercase.index(initials[0])
    return all(initial == ascii_lowercase[(first + i) % 26] for i, initial in enumerate(initials))


@instruction("words:vowel")
def vowel(answer: str) -> bool:
    """One paragraph with at most three of the five vowels."""
    text = answer.strip().lower()
    return "\n" not in text and len(set("aeiou").intersection(text)) <= 3


@instruction("words:consonants")
def consonants(answer: str) -> bool:
    """Each word has two consonants in a row."""
    found = words(answer.lower())
    return bool(found) and all(_CONSONANTS.search(word) for word in found)


@instruction("words:palindrome")
def palindrome(answer: str) -> bool:
    """At least ten words of five or more characters read the same backwards."""
    return sum(len(word) >= 5 and word == word[::-1] for word in _plain_words(answer)) >= 10


@instruction("words:prime_lengths")
def prime_lengths(answer: str) -> bool:
    """The length of every word is a prime number."""
    return all(len(word) in _PRIMES for word in _plain_words(answer))


@instruction("words:repeats")
def repeats(answer: str, small_n: int) -> bool:
    """No word occurs more than so many times."""
    return max(Counter(_plain_words(answer)).values(), default=0) <= small_n


@instruction("words:no_consecutive")
def no_consecutive(answer: str) -> bool:
    """No two neighbouring words begin with the same letter."""
    return all(first[0] != second[0] for first, second in pairwise(_plain_words(answer)))


@instruction("words:last_first")
def last_first(answer: str) -> bool:
    """The last word of each sentence is the first of the next."""
    found = [words(sentence.lower()) for sentence in sentences(answer)]
    return all(before and after and before[-1] == after[0] for before, after in pairwise(found))


@instruction("words:paragraph_last_first")
def paragraph_last_first(answer: str) -> bool:
    """Each line ends with the word that it begins with."""
    lines = (words(line.lower()) for line in answer.split("\n"))
    return all(line[0] == line[-1] for line in lines if line)


@instruction("words:keywords_specific_position")
def keywords_specific_position(answer: str, keyword: str, n: Position, m: Position) -> bool:
    """The keyword is word m of sentence n, in any case."""
    return keyword.strip().lower() in words("".join(sentences(answer)[n - 1 : n]).lower())[m - 1 : m]


@instruction("words:words_position")
def words_position(answer: str, keyword: str) -> bool:
    """The second word and the last but one are the keyword, in any case."""
    found = words(answer.lower())
    return len(found) > 1 and found[1] == found[-2] == keyword.strip().lower()


@instruction("words:odd_even_syllables")
def odd_even_syllables(answer: str) -> bool:
    """Words with odd and even numbers of syllables take turns, as syllapy counts them."""
    try:
        import syllapy
    except ModuleNotFoundError:
        raise VerifierError("words:odd_even_syllables needs syllapy", fix=install_extra("envs")) from None
    parities = [syllapy.count(word) % 2 for word in _plain_words(answer)]
    return all(len(list(run)) == 1 for _, run in groupby(parities))


@instruction("words:start_verb")
def start_verb(answer: str) -> bool:
    """The first word is a verb, as nltk's perceptron tagger sees it; its weights are no part of any package."""
    try:
        import nltk

        tags = nltk.pos_tag([token for word in answer.split()[:20] if (token := word.strip(".,!?;:\"'()*#"))])
    except (ModuleNotFoundError, LookupError):
        raise VerifierError(
            "words:start_verb needs nltk and its English tagger",
            fix=f"{pip_install('nltk')}, and python -m nltk.downloader averaged_perceptron_tagger_eng",
        ) from None
    return bool(tags) and tags[0][1].startswith("VB")


def _plain_words(text: str) -> list[str]:
    """Words in small letters, without any punctuation, inside of them too."""
    return text.lower().translate(STRIP_PUNCTUATION).split()
