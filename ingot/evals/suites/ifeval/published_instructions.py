"""IFEval's instructions as its authors' program reads them, so that a score can be compared with published ones.

Our own checkers (envs/verifiers/instructions) are rewards, too: they read some instructions by their wording, so that nothing is
won by a trick. A score has to be the published one, tricks included. These are read differently there:

    response_language, english_capital, english_lowercase   langdetect says the language, and what it cannot tell is followed
    number_bullet_lists                                      an asterisk alone on its line takes the next line with it
    nth_paragraph_first_word                                 blank paragraphs do not count, and yet are counted to find the nth
    capital_word_frequency                                   words are nltk's: I of I'm is one, and DON'T is two

langdetect draws random numbers; its seed is fixed here. Two things stay ours: sentences (envs/verifiers/text/words.py says how
they differ from Punkt's), and a letter that is none, such as an exclamation mark, for which the published program draws another
one. Paper: Zhou et al. 2023, arXiv 2311.07911.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache

from ingot.envs.verifiers.errors import VerifierError
from ingot.envs.verifiers.instructions.instruction import Instruction, Relation, compare
from ingot.envs.verifiers.text.words import sentences
from ingot.workspace.packages import install_extra

SEED = 0
LANGDETECT = threading.Lock()  # it reads its profiles at the first call, and a second thread would not wait for them
STARRED, HYPHENED = re.compile(r"^\s*\*[^*].*$", re.MULTILINE), re.compile(r"^\s*-.*$", re.MULTILINE)
ENDS_WORD = frozenset(".,?!'\"")


def as_published(instruction: Instruction) -> Instruction:
    """The instruction with the published reading, if that is another one."""
    return replace(instruction, check=PUBLISHED.get(instruction.id, instruction.check))


@lru_cache(maxsize=4096)  # the loose variants of an answer are often the same text
def detected_language(text: str) -> str | None:
    """What langdetect takes the text's language for; None if it cannot tell."""
    try:
        import langdetect
    except ModuleNotFoundError:
        raise VerifierError("IFEval's languages need langdetect", fix=install_extra("evals")) from None
    langdetect.DetectorFactory.seed = SEED
    with LANGDETECT:
        try:
            found: str = langdetect.detect(text)
        except langdetect.LangDetectException:  # a text without letters
            return None
    return found


def response_language(answer: str, language: str) -> bool:
    """The answer is in the language, or in none that can be told."""
    return detected_language(answer) in (language, None)


def english_capital(answer: str) -> bool:
    """English in capitals only."""
    return answer.isupper() and response_language(answer, "en")


def english_lowercase(answer: str) -> bool:
    """English without capitals."""
    return answer.islower() and response_language(answer, "en")


def number_bullet_lists(answer: str, num_bullets: int) -> bool:
    """Exactly so many bullets, which begin with one asterisk or a hyphen."""
    return len(STARRED.findall(answer)) + len(HYPHENED.findall(answer)) == num_bullets


def nth_paragraph_first_word(answer: str, num_paragraphs: int, nth_paragraph: int, first_word: str) -> bool:
    """So many paragraphs that are not blank; the nth of all begins with the word."""
    paragraphs = answer.split("\n\n")
    if sum(bool(paragraph.strip()) for paragraph in paragraphs) != num_paragraphs or nth_paragraph > num_paragraphs:
        return False
    word = "".join(paragraphs[nth_paragraph - 1].split()[:1]).lstrip("'").lstrip('"')
    end = next((place for place, letter in enumerate(word) if letter in ENDS_WORD), len(word))
    return bool(word) and word[:end].lower() == first_word.lower()


def capital_word_frequency(answer: str, capital_frequency: int, capital_relation: Relation) -> bool:
    """Less than, or at least, so many words in capitals."""
    try:
        from nltk.tokenize import NLTKWordTokenizer
    except ModuleNotFoundError:
        raise VerifierError("IFEval's words in capitals need nltk", fix=install_extra("evals")) from None
    tokenizer = NLTKWordTokenizer()
    words = [word for sentence in sentences(answer) for word in tokenizer.tokenize(sentence)]
    return compare(sum(word.isupper() for word in words), capital_relation, capital_frequency)


PUBLISHED: Mapping[str, Callable[..., bool]] = {
    "language:response_language": response_language,
    "change_case:capital_word_frequency": capital_word_frequency,
    "change_case:english_capital": english_capital,
    "change_case:english_lowercase": english_lowercase,
    "detectable_format:number_bullet_lists": number_bullet_lists,
    "length_constraints:nth_paragraph_first_word": nth_paragraph_first_word,
}
