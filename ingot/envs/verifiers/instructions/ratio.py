"""IFBench's family `ratio`: shares of stop words, of kinds of sentences, and of text that is shared with a reference."""

from __future__ import annotations

from ingot.envs.verifiers.instructions.instruction import instruction
from ingot.envs.verifiers.text.words import WORD, sentences, word_set, words

_STOP_WORDS = word_set("""
    a about above after again against ain all am an and any are aren as at be because been before being below between both but by
    can couldn d did didn do does doesn doing don down during each few for from further had hadn has hasn have haven having he her
    here hers herself him himself his how i if in into is isn it its itself just ll m ma me mightn more most mustn my myself needn
    no nor not now o of off on once only or other our ours ourselves out over own re s same shan she should shouldn so some such t
    than that the their theirs them themselves then there these they this those through to too under until up ve very was wasn we
    were weren what when where which while who whom why will with won wouldn y you your yours yourself yourselves
""")  # as nltk's English list has them, cut at the apostrophe as words are here


@instruction("ratio:stop_words")
def stop_words(answer: str, percentage: float) -> bool:
    """At most this percentage of the words are stop words."""
    found = WORD.findall(answer.lower())
    return bool(found) and 100 * sum(word in _STOP_WORDS for word in found) / len(found) <= percentage


@instruction("ratio:sentence_type")
def sentence_type(answer: str) -> bool:
    """Twice as many sentences end in a period as in a question mark."""
    found = sentences(answer)
    return _ending(found, ".") == 2 * _ending(found, "?")


@instruction("ratio:sentence_balance")
def sentence_balance(answer: str) -> bool:
    """As many sentences end in a period as in a question mark and in an exclamation mark."""
    found = sentences(answer)
    return _ending(found, ".") == _ending(found, "?") == _ending(found, "!")


@instruction("ratio:overlap")
def overlap(answer: str, reference_text: str, percentage: float) -> bool:
    """This percentage, up to two points, of the answer's trigrams of characters occur in the reference."""
    own, reference = _trigrams(answer), _trigrams(reference_text)
    return bool(own) and abs(100 * len(own & reference) / len(own) - percentage) <= 2


@instruction("ratio:sentence_words")
def sentence_words(answer: str) -> bool:
    """Three sentences with the same number of characters, in which no word occurs twice."""
    found = sentences(answer)
    used = words(answer.lower())
    return len(found) == 3 and len(set(map(len, found))) == 1 and len(used) == len(set(used))


def _ending(found: list[str], mark: str) -> int:
    return sum(sentence.endswith(mark) for sentence in found)


def _trigrams(text: str) -> set[str]:
    return {text[start : start + 3] for start in range(len(text) - 2)}
