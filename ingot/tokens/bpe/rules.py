r"""How text is cut into pretokens: the regular expressions in use, as a few choices that a CPU kernel can follow.

Merges never cross a cut, so the cuts decide what a token can be. Every byte-level BPE in wide use cuts by one of three
expressions, with small changes:

    GPT-2    's|'t|… |  ?\p{L}+ |  ?\p{N}+ |  ?[^\s\p{L}\p{N}]+ | \s+(?!\S) | \s+
    cl100k   (?i:'s|'t|…) | [^\r\n\p{L}\p{N}]?\p{L}+ | \p{N}{1,3} |  ?[^\s\p{L}\p{N}]+[\r\n]* | \s*[\r\n]+ | \s+(?!\S) | \s+
    o200k    as cl100k, but words are cut where upper case follows lower case, and keep 's, 't … behind them

`split_pattern` writes the expressions that Ingot trains with, `rules_of` reads those of any tokenizer: an expression that
is not in the table is not guessed at.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any, NamedTuple

from ingot.tokens.bpe.classes import BLANK, LATER_NUMBER, LETTER, LOWER, MARK, OTHER, UPPER

LETTERS = UPPER | LOWER | LETTER
ANY_SIGN = OTHER | LATER_NUMBER | MARK | BLANK  # [^\r\n\p{L}\p{N}]


class Rules(NamedTuple):
    """The choices. Sets of classes are sums of the bits in classes.py."""

    word: int = LETTERS  # the characters of a word
    before_word: int = ANY_SIGN  # what may stand once before it; 0: only U+0020
    cased: bool = False  # o200k: cut before upper case, and the contractions belong to the word
    contractions: bool = True  # 's 't 're 've 'm 'll 'd are pretokens
    any_case: bool = True  # contractions in upper case too, and with U+017F, which folds to s
    digits: int = 3  # how many numbers a pretoken holds at most; 0: any, and U+0020 before them
    from_the_right: bool = False  # groups are counted from the end of the number
    digits_first: bool = False  # every number is cut out before anything else is looked at
    line_ends: bool = True  # signs take the line ends behind them, and blanks those before the last line end
    slashes: bool = False  # o200k: … and the slashes among those line ends
    whole_tail: bool = False  # tiktoken's cl100k: blanks that end the text stay together, line ends or not
    blank_in_front: bool = False  # U+0020 is put before a text that begins without one


GPT2 = Rules(before_word=0, any_case=False, digits=0, line_ends=False)
CL100K = Rules()
O200K = Rules(cased=True, contractions=False, slashes=True)

DIGITS = {
    "single": r"\p{N}",
    "groups_of_three": r"\p{N}{1,3}",
    "groups_from_the_right": r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))",
}
DIGIT_RULES: dict[str, dict[str, Any]] = {
    "single": {"digits": 1},
    "groups_of_three": {"digits": 3},
    "groups_from_the_right": {"digits": 3, "from_the_right": True},
}
CONTRACTIONS = r"'(?i:[sdmt]|ll|ve|re)"
CASED_UPPER, CASED_LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
ENDING = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
BLANKS = r"\s*[\r\n]+|\s+(?!\S)|\s+"  # line ends with the blanks before them; blanks but the last; the last one
SPLITS: dict[str, tuple[str, Rules]] = {
    "words_with_marks": (
        CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|DIGITS| ?[^\s\p{L}\p{N}]+[\r\n]*|" + BLANKS,
        CL100K._replace(word=LETTERS | MARK),
    ),
    "cl100k": (
        CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|DIGITS| ?[^\s\p{L}\p{N}]+[\r\n]*|" + BLANKS,
        CL100K,
    ),
    "o200k": (
        rf"[^\r\n\p{{L}}\p{{N}}]?{CASED_UPPER}*{CASED_LOWER}+{ENDING}"
        rf"|[^\r\n\p{{L}}\p{{N}}]?{CASED_UPPER}+{CASED_LOWER}*{ENDING}"
        r"|DIGITS| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + BLANKS,
        O200K,
    ),
}
"""What Ingot can train with: the expression, with DIGITS where the rule for numbers goes, and the choices that it means."""


def split_pattern(split: str, digits: str) -> str:
    """The regular expression whose matches are encoded each by itself."""
    return SPLITS[split][0].replace("DIGITS", DIGITS[digits])


TIKTOKEN: dict[str, tuple[str, Rules]] = {
    "r50k_base": (r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s""", GPT2),
    "cl100k_base": (
        r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"""
        r"""|\s++$|\s*[\r\n]|\s+(?!\S)|\s""",
        CL100K._replace(whole_tail=True),
    ),
    "o200k_base": (split_pattern("o200k", "groups_of_three"), O200K),
}
"""The expressions of tiktoken 0.14 by the name of the encoding."""

_FOREIGN = {
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+": GPT2,
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + BLANKS: CL100K,
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + BLANKS: CL100K._replace(
        digits=1
    ),
}  # GPT-2; Llama 3 and the older cl100k; Qwen 2 and 3
PATTERNS: dict[str, Rules] = (
    {
        split_pattern(split, digits): SPLITS[split][1]._replace(**DIGIT_RULES[digits])
        for split, digits in product(SPLITS, DIGITS)
    }
    | dict(TIKTOKEN.values())
    | _FOREIGN
)
"""Every expression that is understood."""


def rules_of(pre_tokenizer: Mapping[str, Any] | None) -> Rules | None:
    """The choices of a `pre_tokenizer` in a tokenizer.json; None if it is not one that is known here.

    Known are ByteLevel alone, Digits before it (SmolLM2), and one Split before a ByteLevel that cuts nothing itself.
    """
    if pre_tokenizer is None:
        return None
    steps = list(pre_tokenizer.get("pretokenizers", [pre_tokenizer]))
    last = steps.pop()
    if last.get("type") != "ByteLevel":
        return None
    in_front = bool(last.get("add_prefix_space", True))
    if last.get("use_regex", True):
        if not steps:
            return GPT2._replace(blank_in_front=in_front)
        if not in_front and steps == [{"type": "Digits", "individual_digits": True}]:
            return GPT2._replace(digits_first=True)
        return None
    if in_front or len(steps) != 1 or steps[0].get("type") != "Split":
        return None  # a blank would be put before every piece
    split = steps[0]
    if split.get("behavior") != "Isolated" or split.get("invert"):
        return None
    return PATTERNS.get(split.get("pattern", {}).get("Regex", ""))
