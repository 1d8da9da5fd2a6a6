r"""Does a reply's final answer equal the reference, as mathematics?

`extract_answer` finds the answer: the \boxed{…}, else the line after GSM8K's ####, else what follows "the answer is". A reply
gives one answer: two boxes (or lines, or sentences) with different contents give none. `same_answer` compares, cheapest first:

    the same spelling         \dfrac12 and $\frac{1}{2}$.                 (answer_text.py)
    the same exact number     1,000, 1\,000 and 1000.0; 1e3 and 1000; 3/4 and 0.75; 18 million and 18,000,000; but 0.33 is not 1/3
    a set in another form     x < 3 and (-\infty,3); "no solution"; "x < 1 or x > 3", but not "x < 1 and x > 3", and the
                              union of their sets                          (answer_intervals.py)
    a collection, by element  (1,2), \langle 1,2\rangle and a column in order; {1,2}, "1 and 2", 1 \pm 2, unions in any order;
                              the kind of bracket counts, and how often an element stands there
    the same expression       x^2+2x+1 and (x+1)^2: math-verify and SymPy, in a child process (children.py)

Conventions. Decimals are exact in every expression. A number is answered by a number or one power: 17+25 is not 42, 2^{10} is
1024. A unit, a percent sign, a degree sign and the base of a number may be missing on one side, but if both sides have one it
must be the same: 50% is 50, and not 0.5; but million is a number. A name in front (x = 3, f(x) = …, x \in …) may be missing on
one side. x < 3 is (-\infty,3). Case counts in letters (\pi R^2), not in words. An answer with control characters, over the size
limits, or that takes the library over its time, is wrong, and `compare` says why; a reference over the limits is an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache

from ingot.envs.verifiers.children import TOO_SLOW, Children
from ingot.envs.verifiers.errors import NoVerdict, VerifierError
from ingot.envs.verifiers.math.answer_intervals import as_set
from ingot.envs.verifiers.math.answer_numbers import exact_decimals, plain_number
from ingot.envs.verifiers.math.answer_parts import (
    Collection,
    digits_of,
    read_collection,
    split_name,
    split_unit,
    without_parentheses,
)
from ingot.envs.verifiers.math.answer_text import canonical, is_words, too_costly, too_long

SECONDS = 2.0  # of a processor, for a pair: it takes milliseconds
CONTENT = re.compile(r"[^\W_]|\\[a-zA-Z{]")
MARGIN = 20  # characters around an answer, as $$ or \boxed{}
SAME, DIFFERENT, TOO_LARGE = "same", "different", "too large to compare"
BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
BOX_LENGTH = 1000  # characters; a longer one would be over the size limits anyway
LINE = re.compile(r"^[ \t]*####([^\n]*)$", re.MULTILINE)
SENTENCE = re.compile(  # also **Answer:** 5
    r"\b(?:the )?(?:final )?answer(?:\*\*)?(?: is\b:?|:)(?:\*\*(?=\s))?", re.IGNORECASE
)
SENTENCE_END = re.compile(r"\.\s+[A-Z]")
NUMBER = re.compile(r"(?<![\w.,])-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?![\w]|[.,]\d)", re.ASCII)
POWER = re.compile(r"-?[\d.]+(?:\s*(?:\\times|\\cdot|\*)\s*[\d.]+)?\^(?:\{-?\d+\}|\d)")
DIGITS = re.compile(r"-?\d{1,30}(?:\.\d{1,30})?", re.ASCII)
CHILDREN = Children("math")


def extract_answer(text: str, *, last_number: bool = False) -> str | None:
    """The final answer that a reply marks, None if it marks none or several; `last_number` takes a bare number, if need be."""
    for found in (_boxes(text), LINE.findall(text), _sentences(text)):
        if found is None or found:
            return _only(found or [])
    if last_number and (numbers := NUMBER.findall(text)):
        return str(numbers[-1])
    return None


def math_reward(text: str, reference: str) -> float:
    """1 if the reply's final answer is the reference, else 0."""
    answer = extract_answer(text)
    return float(answer is not None and same_answer(answer, reference))


def same_at_once(given: str, reference: str) -> bool | None:
    """What `same_answer` says where spelling or plain digits decide it, which takes microseconds; None elsewhere."""
    if given == reference and CONTENT.search(reference):
        return True
    if _too_long(given, reference):
        return False
    left, right = canonical(given), canonical(reference)
    if left == right:
        return bool(left)
    if DIGITS.fullmatch(left) and DIGITS.fullmatch(right):
        return plain_number(left) == plain_number(right)
    return None


def same_answer(given: str, reference: str, *, seconds: float = SECONDS) -> bool:
    """Whether `given` is the same mathematical answer as `reference`."""
    return compare(given, reference, seconds=seconds) == SAME


def compare(given: str, reference: str, *, seconds: float = SECONDS) -> str:
    """One of SAME and DIFFERENT, or why an answer cannot be compared, which makes it wrong as well.

    A VerifierError where the answer is not to blame: no process to compare in, a reference over the limits.
    """
    known = same_at_once(given, reference)
    if known is not None:
        return TOO_LARGE if _too_long(given, reference) else SAME if known else DIFFERENT
    left, right = canonical(given), canonical(reference)
    if too_long(reference) or too_costly(right):
        raise VerifierError("the reference answer is over the size limits", place=reference[:80], fix="leave it out")
    if not left:
        return DIFFERENT
    return TOO_LARGE if too_long(given) or too_costly(left) else _compared(left, right, seconds)


@lru_cache(maxsize=4096)
def _compared(given: str, reference: str, seconds: float) -> str:
    """What the library says; remembered, because the answers to one problem are often the same one, also a monstrous one."""
    try:
        return SAME if _same(given, reference, _library(seconds)) else DIFFERENT
    except NoVerdict as error:
        if fault := _fault_of(reference):
            problem = f"the reference answer cannot be compared: {fault}"
            raise VerifierError(problem, place=reference[:80], fix="leave it out") from error
        return error.cause


@lru_cache(maxsize=4096)
def _fault_of(reference: str) -> str:
    """Why a reference cannot be compared with a small answer either; "" if it can."""
    collection, same = read_collection(reference), _library(SECONDS)
    try:
        for item in collection.items if collection else (reference,):
            same("1", item)
    except NoVerdict as error:
        return error.cause
    return ""


def _library(seconds: float) -> Callable[[str, str], bool]:
    """The library's word on expressions, as long as it has so many seconds in all; to start a child takes nothing of them."""

    def same(first: str, second: str) -> bool:
        nonlocal seconds
        if seconds > 0:
            answer = CHILDREN.ask({"reference": exact_decimals(second), "given": exact_decimals(first)}, seconds)
            seconds -= answer["took"]
            if "same" in answer:
                return bool(answer["same"])
        raise NoVerdict(TOO_LARGE if seconds > 0 else TOO_SLOW, place=f"{first[:80]} and {second[:80]}")

    return same


def _too_long(given: str, reference: str) -> bool:
    """Whether an answer is over the limits, and longer than a reference which is so too would explain."""
    return too_long(given) and len(given) > len(reference) + MARGIN


def _same(given: str, reference: str, same: Callable[[str, str], bool]) -> bool:
    """Compare two canonical texts; `same` compares two expressions."""
    if given == reference:
        return True
    (name, given_value), (reference_name, reference_value) = split_name(given), split_name(reference)
    if bool(name) != bool(reference_name) and "=" not in given_value + reference_value:
        given, reference = given_value, reference_value
    if (r"\ldots" in given) != (r"\ldots" in reference):
        return False  # the library leaves the dots out
    (given, variable), (reference, reference_variable) = as_set(given), as_set(reference)
    if variable and reference_variable and variable != reference_variable:
        return False
    (given, unit), (reference, reference_unit) = split_unit(given), split_unit(reference)
    if unit and reference_unit and unit != reference_unit:
        return False
    if "base" in unit + reference_unit:
        return digits_of(given) == digits_of(reference)
    given, reference = without_parentheses(given), without_parentheses(reference)
    if given == reference:
        return True
    if is_words(given) or is_words(reference) or re.fullmatch(r"\\text\{[^{}]*\}", reference):
        return _letters(given) == _letters(reference)
    number, reference_number = plain_number(given), plain_number(reference)
    if number is not None and number == reference_number:
        return True  # also 1,234, which may be a list as well
    collection, reference_collection = read_collection(given), read_collection(reference)
    if number is not None and reference_collection is None:
        given, collection = given.replace(",", ""), None
    # 17+25 is no answer to what 17+25 is; 10^6 and 3 \times 10^6 are
    if reference_number is not None and collection is None:
        return bool(POWER.fullmatch(given)) and same(given, str(reference_number))
    if collection or reference_collection:
        if collection is None or reference_collection is None:
            relation = any(sign in given + reference for sign in ("<", ">", r"\le", r"\ge"))
            return relation and same(given, reference)  # |x| < 2 may be given as (-2,2), and the other way round
        return _same_collection(collection, reference_collection, same)
    return same(given, reference)


def _same_collection(given: Collection, reference: Collection, same: Callable[[str, str], bool]) -> bool:
    if len(given.items) != len(reference.items) or not given.may_stand_for(reference):
        return False
    if reference.ordered:
        return all(_same(one, other, same) for one, other in zip(given.items, reference.items, strict=True))
    left = list(reference.items)
    for item in given.items:
        place = next((place for place, other in enumerate(left) if _same(item, other, same)), None)
        if place is None:
            return False
        del left[place]
    return True


def _letters(text: str) -> str:
    """Words without case, brackets and blanks. Letters in the order of the alphabet (C, acf, xyz) are no word: they keep it."""
    bare = re.sub(r"\\text|[\s(){}.\-]", "", text)
    letters = bare.replace(",", "")
    folded, title = letters.casefold(), len(letters) > 1 and letters.istitle()
    ordered = len(letters) <= 4 and not title and sorted(set(folded)) == list(folded)
    return bare if ordered else bare.casefold()


def _boxes(text: str) -> list[str] | None:
    """The contents of all boxes; None if one is not closed."""
    found, place = [], 0
    while match := BOX.search(text, place):
        content = next(_closed(text, match.end()), None)
        if content is None:
            return None
        found.append(content)
        place = match.end() + len(content)
    return found


def _sentences(text: str) -> list[str]:
    """What follows "the answer is", to the end of the sentence or the line."""
    _, *rests = SENTENCE.split(text)
    lines = (rest[:BOX_LENGTH].lstrip().partition("\n")[0] for rest in rests)
    ends = (SENTENCE_END.split(line, maxsplit=1)[0] for line in lines if line)
    return [end if end.count("**") % 2 == 0 else end.replace("**", "") for end in ends]  # **Answer: 5**


def _closed(text: str, start: int) -> Iterator[str]:
    """The text from `start` to the brace that closes it; nothing if that does not come soon."""
    depth, escaped = 1, False
    for place in range(start, min(len(text), start + BOX_LENGTH)):
        if escaped:
            escaped = False
        elif text[place] == "\\":
            escaped = True
        elif text[place] in "{}":
            depth += 1 if text[place] == "{" else -1
            if depth == 0:
                yield text[start:place]
                return


def _only(found: list[str]) -> str | None:
    """The last of several answers, if all of them are one and the same."""
    spellings = {canonical(each[:BOX_LENGTH]) for each in found}
    return found[-1].strip() if len(spellings) == 1 and "" not in spellings else None
