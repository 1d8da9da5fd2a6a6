r"""The text of a mathematical answer: one spelling for many, and how large an answer may be.

`canonical` writes what LaTeX shows alike in one way: $\dfrac12$. becomes \frac{1}{2}. It changes no meaning, so equal canonical
texts are equal answers, and it is what all further reading begins with. Numbers: answer_numbers.py.
"""

from __future__ import annotations

import re
from functools import lru_cache

from ingot.envs.verifiers.math.answer_numbers import spelled

LENGTH_LIMIT = 300  # characters
DEPTH_LIMIT = 20  # of brackets
DIGITS_LIMIT = 100  # of one number
EXPONENT_LIMIT = 10_000
TOWER_LIMIT = 2  # exponents of exponents
FACTORIAL_LIMIT = 10_000

BLANKS = "\u00a0\u2009\u202f"  # that do not break a line, or are thin
UNICODE = {
    **{"−": "-", "–": "-", "×": r"\times ", "·": r"\cdot ", "÷": "/", "π": r"\pi ", "∞": r"\infty ", "√": r"\sqrt "},
    **{"≤": r"\le ", "≥": r"\ge ", "∪": r"\cup ", "∈": r"\in ", "±": r"\pm ", "°": r"^\circ ", "²": "^2", "³": "^3"},
    **{"≠": r"\ne ", "∅": r"\emptyset ", "ℝ": r"\mathbb{R}", "⟨": r"\langle ", "⟩": r"\rangle ", "…": r"\ldots "},
    **dict.fromkeys(BLANKS, " "),
}
LABEL = re.compile(  # **Answer:** 5
    r"(?:\\text(?:bf)?\{|[*_]*)\s*(?:the\s)?(?:final\s)?answer[*_]*\s*(?::|\bis\b:?)[*_\s]*\}?", re.IGNORECASE
)
RELATION = re.compile(r"[<>]|\\(?:le|ge|lt|gt|ne)")
OR = re.compile(r",?\s*\\text\{\s*or\s*\}|,?\s+or\s+")
ALIKE = (
    (re.compile(r"\\(?:displaystyle|textstyle|limits|!)(?![a-zA-Z])"), ""),
    (re.compile(r"\\(?:left|right|big|Big|bigg|Bigg)[lr]?(?![a-zA-Z])\s*\.?"), ""),
    (re.compile(r"\\[dtc]frac(?![a-zA-Z])"), r"\\frac"),
    (re.compile(r"\\[dt]binom(?![a-zA-Z])"), r"\\binom"),
    (re.compile(r"\\(?:leq|leqslant)(?![a-zA-Z])"), r"\\le "),
    (re.compile(r"\\(?:geq|geqslant)(?![a-zA-Z])"), r"\\ge "),
    (re.compile(r"\\neq(?![a-zA-Z])"), r"\\ne "),
    (re.compile(r"\\lt(?![a-zA-Z])"), "<"),
    (re.compile(r"\\gt(?![a-zA-Z])"), ">"),
    (re.compile(r"\\mathbb\s*R(?![a-zA-Z])|\\R(?![a-zA-Z])|\\Reals?(?![a-zA-Z])"), r"\\mathbb{R}"),
    (re.compile(r"\\varnothing(?![a-zA-Z])"), r"\\emptyset "),
    (re.compile(r"\\(?:dots|cdots|dotsc|dotsb)(?![a-zA-Z])|\.\.\."), r"\\ldots "),
    (re.compile(r"\\(?:text|textbf|textit|textrm|textnormal|mbox|mathrm|mathbf|mathit|operatorname)\s*\{"), r"\\text{"),
    (re.compile(r",?\s*\\text\{\s*(?:and|or)\s*\}|,?\s+(?:and|or)\s+"), ", "),
    (re.compile(r"\^\s*\{?\s*\\circ\s*\}?|\\degree(?![a-zA-Z])"), "°"),
    (re.compile(r"(?<!\\)\\(?:[,;: ]|quad|qquad|thinspace|space)(?![a-zA-Z])|~"), " "),
    (re.compile(r"\{,\}"), ","),
    (re.compile(r"\\lbrace(?![a-zA-Z])"), r"\\{"),
    (re.compile(r"\\rbrace(?![a-zA-Z])"), r"\\}"),
)
ENVELOPES = (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"), ("**", "**"), (r"\boxed{", "}"), ("{", "}"))
OPERAND = r"\s*(?:\{|(\\[a-zA-Z]+|[0-9a-zA-Z]))"
WORDS = re.compile(r"\(?[A-Za-z][A-Za-z'.,\- ]*\)?", re.ASCII)
POWER = re.compile(r"(\d*)[)}\s]*\^[\s{(+-]*(\d*)")
FACTORIAL = re.compile(r"(\d*)[\s)}]*!")
BINOMIAL = re.compile(r"\\binom\{(\d+)\}\{(\d+)\}")
FACTORIALS = re.compile(r"![\s)}]*!")  # (9!)!


@lru_cache(maxsize=4096)
def canonical(text: str) -> str:
    """The one spelling of an answer; it is asked for again and again, and the answers to one problem have one reference."""
    for sign, latex in UNICODE.items():
        text = text.replace(sign, latex)
    text = text.replace(r"\$", "").replace(r"\%", "%")
    text = re.sub(r",\s*\\!\s*(?=\d{3})", ",", text)  # 11,\! 111 is a number
    text = _unwrap(text.strip())
    text = _unwrap(LABEL.sub("", text, count=1)) if LABEL.match(text) else text
    text = text.removeprefix("=").lstrip().removeprefix("+")
    if RELATION.search(text):
        text = OR.sub(r"\\cup ", text)
    for pattern, replacement in ALIKE:
        text = pattern.sub(replacement, text)
    text = _braced(text.replace("$", ""))
    text = re.sub(r"\s+", " ", text).strip()
    text = re.sub(r"(?<![A-Za-z0-9}]) | (?![A-Za-z0-9(\\.])", "", text)  # a blank parts words and numbers only
    text = re.sub(r"^\\text\{([^{}a-zA-Z]*)\}$", r"\1", text)
    text = re.sub(r"^\\\{\\\}$", r"\\emptyset", text)
    text = re.sub(r"^<([^<>]*,[^<>]*)>$", r"\\langle \1\\rangle", text)
    return spelled(_unwrap(text))


def _unwrap(text: str) -> str:
    """Without the last period and what stands around the whole answer."""
    while True:
        before = text
        text = text.strip()
        if text.endswith(".") and not text.endswith(".."):
            text = text[:-1].rstrip()
        for opening, closing in ENVELOPES:
            inside = text[len(opening) : len(text) - len(closing)]
            if (
                text.startswith(opening)
                and text.endswith(closing)
                and len(text) > len(opening)
                and _whole(inside, opening)
            ):
                text = inside
        if text == before:
            return text


def _whole(inside: str, opening: str) -> bool:
    """Whether the brackets around `inside` belong together."""
    if not opening.endswith("{"):
        return opening not in inside
    depth = 0
    for sign in re.findall(r"\\.|[{}]", inside):
        depth += {"{": 1, "}": -1}.get(sign, 0)
        if depth < 0:
            return False
    return depth == 0


def _braced(text: str) -> str:
    r"""\frac12, \frac1{72} and \sqrt3 with all their braces."""
    for command, operands in ((r"\frac", 2), (r"\sqrt", 1), (r"\binom", 2)):
        place = 0
        while (place := text.find(command, place)) >= 0:
            place += len(command)
            at = place
            for _ in range(operands):
                match = re.compile(OPERAND).match(text, at)
                if match is None:
                    break
                if match[1] is None:
                    text = text[:at] + text[match.end() - 1 :]
                    at = _closing(text, at)
                else:
                    text = f"{text[:at]}{{{match[1]}}}{text[match.end() :]}"
                    at += len(match[1]) + 2
    return text


def _closing(text: str, start: int) -> int:
    """Where the brace that opens at `start` has been closed."""
    depth = 0
    for match in re.compile(r"\\.|[{}]").finditer(text, start):
        depth += {"{": 1, "}": -1}.get(match[0], 0)
        if depth == 0:
            return match.end()
    return len(text)


def is_words(text: str) -> bool:
    r"""Whether an answer is words (\text{…}, or three letters and more in a row) and not an expression."""
    bare = re.sub(r"\\text\{([^{}]*)\}", r"\1", text)
    return bool(WORDS.fullmatch(bare)) and ("\\text" in text or bool(re.search("[A-Za-z]{3}", bare)))


def too_long(text: str) -> bool:
    """Whether an answer is over the limits of length or depth, or has control characters."""
    if len(text) > LENGTH_LIMIT or not all(sign.isprintable() or sign in "\n\t\r" + BLANKS for sign in text):
        return True
    depth = deepest = 0
    for sign in text:
        depth += (sign in "([{") - (sign in ")]}")
        deepest = max(deepest, depth)
    return deepest > DEPTH_LIMIT


def too_costly(text: str) -> bool:
    """Whether a canonical text writes a number that is too large to compute: long, a high power, a tower, a factorial."""
    text = text.replace("**", "^").replace(",", "")
    if any(len(digits) > DIGITS_LIMIT for digits in re.findall(r"\d+", text)) or _exponents(text) > TOWER_LIMIT:
        return True
    for base, exponent in POWER.findall(text):
        if int(exponent or 0) > EXPONENT_LIMIT:
            return True
        if _exponents(text) > 1 and base and exponent and int(base) ** int(exponent) > EXPONENT_LIMIT:
            return True  # 9^{9^9}
    if any(FACTORIAL_LIMIT < int(some) < int(all) - FACTORIAL_LIMIT for all, some in BINOMIAL.findall(text)):
        return True
    factorials = FACTORIAL.findall(text)
    return bool(FACTORIALS.search(text)) or any(int(digits or 0) > FACTORIAL_LIMIT for digits in factorials)


def _exponents(text: str) -> int:
    """How deep exponents stand in exponents: 1 for x^2, 2 for e^{x^2} and for 2^3^4."""
    deepest = after = 0  # `after`: the depth of the operand that was read last
    stack, level = [0], None  # the depths inside open brackets; the depth of the operand that a ^ announces
    for sign in re.findall(r"\\[a-zA-Z]+|\d+|\S", text):
        if sign == "^":
            level = after + 1
            deepest = max(deepest, level)
        elif sign in "([{":
            stack.append(stack[-1] if level is None else level)
            level = None
        elif sign in ")]}" and len(stack) > 1:
            after = stack.pop()
        elif level is None or sign not in "+-":
            after, level = stack[-1] if level is None else level, None
    return deepest
