"""Splits an answer into words, sentences and paragraphs, as instruction verifiers count them.

A word is a run of letters, digits and underscores where words are only counted (`number_of_words`), and what stands between
blanks without its outer punctuation where words are compared (`words`): "don't" is one word there.

Sentences follow the decisions of Punkt (Kiss and Strunk 2006, "Unsupervised multilingual sentence boundary detection"), which
IFEval and IFBench call through nltk, with a list of abbreviations written here instead of nltk's, which is not on PyPI.
A period, question mark or exclamation mark before white space, a quote, a bracket or an asterisk ends a sentence, except:

    Mr. Smith     an abbreviation, unless a word that often begins sentences follows with a capital
    wait... what  an ellipsis, likewise
    J. Smith      an initial before a capital that is not such a word, unless it opens a line, as the A. of a list
    5. of May     a number before a word without a capital
    (!).          a mark in brackets or quotes before another one

Line ends do not end sentences, and the "1." of a list is one, as in Punkt: counts are those of the published checkers.
"""

from __future__ import annotations

import re
import string
import unicodedata

_COMBINING = "".join(chr(c) for c in range(0x300, 0xFFFF) if unicodedata.category(chr(c)).startswith("M"))
WORD = re.compile(rf"[\w{_COMBINING}]+")  # with the vowel signs of Hindi and others, which Python's \w leaves out
OUTER = string.punctuation + string.whitespace + "“”‘’«»…—–"
STRIP_PUNCTUATION = str.maketrans("", "", string.punctuation)

_END = re.compile(r"[.?!](?=[)\";}\]*:@'({\[]|[”’»]*\s+\S)")
_CLOSING = re.compile(r"[\"')\]}”’»]+")
_LAST_TOKEN = re.compile(r"[^\s(\"`{\[:;&#*@)}\],]*$")
_NEXT = re.compile(r"\s*[\"'(\[{*“‘_]*([^\s\"'()\[\]{}*“”‘’,:;.!?]*)")
_INITIAL = re.compile(r"[^\W\d]")
_NUMBER = re.compile(r"[-+]?\d[\d.,:/-]*")
_ACRONYM = re.compile(r"[^\W\d](?:\.[^\W\d])+")


def word_set(text: str) -> frozenset[str]:
    """The words of a list that is written as text."""
    return frozenset(text.split())


_ABBREVIATIONS = word_set("""
    adm al approx apr assn assoc aug ave bros ca capt cf cmdr co col corp cos ct dec dept dr e.g ed eds esp est etc exec feb ff
    fig figs fr fri ft gen gov hon i.e inc jan jr lt ltd maj messrs mr mrs ms mt nov oct op ph.d pp prof rep reps rev
    sen sens sep sept sgt sr st ste supt thu thur thurs tue tues viz vol vols vs wed
    ala ariz calif colo conn fla ga kan ky mass mich minn miss nev okla ore pa tenn va vt wash wis
""")
_LONE_ABBREVIATIONS = frozenset("cdefghklmnprstvw")  # single letters that Punkt's English model takes for abbreviations
_BEGINNERS = word_set("""
    a about above according across after again all also although an and another any are as at because before both but by can
    could did do does during each either even every finally first for from given had has have he her here his how however i if
    in indeed instead into is it its just last let like many meanwhile more moreover most my nevertheless next no nonetheless nor
    not now of on once one only or other our over overall perhaps please several she should similarly since so some still such
    that the their then there therefore these they this those though through thus to two under until was we were what when where
    whether which while who why will with without would yes yet you your
""")


def words(text: str) -> list[str]:
    """What stands between blanks, without outer punctuation; pieces of only punctuation are left out."""
    return [word for piece in text.split() if (word := piece.strip(OUTER))]


def number_of_words(text: str) -> int:
    """Runs of letters, digits and underscores, as IFEval counts them."""
    return sum(1 for _ in WORD.finditer(text))


def paragraphs(text: str) -> list[str]:
    """The parts between blank lines that are not blank themselves."""
    return [part for part in text.split("\n\n") if part.strip()]


def sentences(text: str) -> list[str]:
    """The sentences of English text, each without outer white space."""
    found, start = [], 0
    for end in _END.finditer(text):
        if end.start() < start or not _ends_sentence(text, end.start(), start):
            continue
        closing = _CLOSING.match(text, end.end())
        stop = closing.end() if closing else end.end()
        if closing and text[stop : stop + 1] in (".", "?", "!"):
            continue
        found.append(text[start:stop].strip())
        start = stop
    rest = text[start:].strip()
    if found and _CLOSING.fullmatch(rest):  # a closing quote on a line of its own
        return found
    return [*found, rest] if rest else found


def _ends_sentence(text: str, position: int, start: int) -> bool:
    """Whether the mark at `position` ends the sentence that begins at `start`."""
    if text[position] != ".":
        return True
    before = text[max(start, position - 64) : position]
    following = _NEXT.match(text, position + 1)
    next_word = following[1] if following else ""
    begins = next_word[:1].isupper() and next_word.lower() in _BEGINNERS
    if before.endswith("."):  # an ellipsis
        return begins
    token = _LAST_TOKEN.search(before)
    name = token[0].lower().rpartition("-")[2] if token else ""
    if _INITIAL.fullmatch(name):
        opens_line = not before[: -len(name)].rpartition("\n")[2].strip(" \t*#-")
        return begins or (name not in _LONE_ABBREVIATIONS and (opens_line or not next_word[:1].isupper()))
    if name in _ABBREVIATIONS or _ACRONYM.fullmatch(name):
        return begins
    return not (_NUMBER.fullmatch(name) and next_word[:1].islower())
