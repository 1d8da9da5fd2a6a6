r"""The parts of an answer: its unit, the name in front of it, and the elements of a list, a set, a tuple or an interval.

All functions take canonical text (answer_text.py).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ingot.envs.verifiers.math.answer_numbers import plain_number, spelled
from ingot.envs.verifiers.math.answer_text import canonical

TEXT_UNIT = re.compile(r"(.*[^\s\\^_({,])\s*\\text\{([^{}]*)\}(\^\{?[23]\}?)?", re.DOTALL)
WORD_UNIT = re.compile(  # a word of three letters or more after a blank, so that 12xy stays a product
    r"(.*?\S)\s+([a-zA-Z]{3}[a-zA-Z./ ]*|sq [a-z ]+|[ckm]m|[km]g|m[ilL]|ft|in|lb|hr)(\^\{?[23]\}?)?", re.DOTALL
)
QUOTIENT_UNIT = re.compile(  # 3 m/s, 1.2 g/cm^3; the short names of units only, so that 3 x/y stays a quotient
    r"(.*?\S)\s+((?:[ckm]?m|mi|ft|in|[km]?g|lb|m?L|mol|[NJWVA])(?:\^\{?[23]\}?)?/"
    r"(?:s|min|h|hr|[ckm]?m|[km]?g|m?L|mol|ft)(?:\^\{?[23]\}?)?)()",
)
SIGN_UNIT = re.compile(r"(.+?)\s*(%|°|percent|degrees?)\s*([CF]?)", re.DOTALL)
BASE = re.compile(r"(-?[0-9A-Fa-f,]+)_\{?(\d{1,2})\}?")
NO_UNITS = re.compile(
    r"\b(pi|sqrt|sin|cos|tan|cot|sec|csc|log|ln|exp|arcsin|arccos|arctan|mod|infty|inf|and|or|frac)\b", re.IGNORECASE
)
SAME_UNIT = {
    **dict.fromkeys(("inch", "inche", "in"), "inch"),
    **dict.fromkeys(("foot", "feet", "ft"), "foot"),
    **dict.fromkeys(("centimeter", "centimetre", "cm"), "cm"),
    **dict.fromkeys(("kilometer", "kilometre", "km"), "km"),
    **dict.fromkeys(("meter", "metre", "m"), "m"),
    **dict.fromkeys(("minute", "min"), "minute"),
    **dict.fromkeys(("second", "sec"), "second"),
    **dict.fromkeys(("hour", "hr"), "hour"),
    **dict.fromkeys(("mile", "mi"), "mile"),
    **dict.fromkeys(("dollar", "usd"), "dollar"),
    **dict.fromkeys(("percent", "%"), "%"),
    **dict.fromkeys(("degree", "°", "deg"), "°"),
}
NAME = re.compile(r"([A-Za-z](?:'|_\{?\w+\}?)?(?:\([a-z](?:,[a-z])*\))?)\s?(=|\\in(?![a-z]))")
BRACKETS = {"(": ")", "[": "]", r"\{": r"\}", r"\langle": r"\rangle"}
POINTS = {("(", ")"), (r"\langle", r"\rangle")}
COLUMN = re.compile(r"\\begin\{([pb]matrix)\}([^&]*)\\end\{\1\}")
SCALES = {"hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12, "dozen": 12}


@dataclass(frozen=True)
class Collection:
    """Several elements. `opening` and `closing` are its brackets, empty for a bare list; a union's are its operator."""

    opening: str
    closing: str
    items: tuple[str, ...]

    @property
    def ordered(self) -> bool:
        """Tuples, points, vectors and intervals; not sets, lists and unions."""
        return self.opening in ("(", "[", r"\langle")

    def may_stand_for(self, reference: Collection) -> bool:
        """The same brackets; a list may stand for a set, a point for a vector, each also the other way round.

        And a list without brackets for a tuple.
        """
        brackets, expected = (self.opening, self.closing), (reference.opening, reference.closing)
        lists = {("", ""), (r"\{", r"\}")}
        return (
            brackets == expected
            or (brackets in lists and expected in lists)
            or ((brackets in POINTS or brackets == ("", "")) and expected in POINTS)
        )


def split_unit(text: str) -> tuple[str, str]:
    """The answer without its unit, percent or degree sign or base, and that in one spelling; the unit is "" if there is none."""
    if match := BASE.fullmatch(text):
        return match[1], f"base {match[2]}"
    if match := SIGN_UNIT.fullmatch(text):
        return match[1], _unit(match[2]) + match[3]
    if match := TEXT_UNIT.fullmatch(text):
        return _scaled(match[1], _unit(match[2] + re.sub(r"\D", "", match[3] or "")))
    if match := QUOTIENT_UNIT.fullmatch(text) or WORD_UNIT.fullmatch(text):
        number, words, power = match.groups()
        if plain_number(number) is not None and not NO_UNITS.search(words):
            return _scaled(number, _unit(words + re.sub(r"\D", "", power or "")))
    return text, ""


def digits_of(text: str) -> str:
    """The digits of a number in a base, which may be letters: 3E8 is no power of ten there."""
    return spelled(text.replace(",", "")).upper().lstrip("0")


def _scaled(number: str, unit: str) -> tuple[str, str]:
    """18 million people: 18,000,000 and their unit. Only a plain number is multiplied."""
    scale, _, rest = unit.partition(" ")
    if scale not in SCALES:
        return number, unit
    value = plain_number(number)
    if value is None:
        return f"{number}\\cdot {SCALES[scale]}", rest
    value *= SCALES[scale]
    return (str(value) if value.denominator == 1 else rf"\frac{{{value.numerator}}}{{{value.denominator}}}"), rest


def _singular(word: str) -> str:
    """Inches as inch; ms are milliseconds."""
    return word.removesuffix("s") if len(word) > 2 else word


def _unit(text: str) -> str:
    """One spelling: singular, short, "square" as a power. Small letters, but for the M of MW, which is not mW."""
    text = re.sub(r"\bM(?=(?:[mgWJVNL]|Hz|Pa)\b)", "mega", text)
    words = [SAME_UNIT.get(word, word) for word in map(_singular, re.findall(r"[a-z]+|[%°23/]", text.lower()))]
    power = {"square": "2", "sq": "2", "cubic": "3", "cu": "3"}
    if words and words[0] in power:
        words = [*words[1:], power[words[0]]]
    return " ".join(words)


def split_name(text: str) -> tuple[str, str]:
    r"""The name before an answer (x=, f(x)=, x\in), and the answer; the name is "" if there is none or if more follow."""
    match = NAME.match(text)
    if match is None or "=" in text[match.end() :]:  # a = b = 3
        return "", text
    return match[1], text[match.end() :]


def read_collection(text: str) -> Collection | None:
    r"""The elements of a list, set, tuple, interval or union, or of a \pm; None for anything else."""
    if text.count(r"\pm") == 1:
        return Collection("", "", tuple(canonical(text.replace(r"\pm", sign)).removeprefix("+") for sign in "+-"))
    union = _split(text, r"\cup")
    if union and len(union) > 1:
        return Collection(r"\cup", r"\cup", tuple(map(canonical, union)))
    if (column := COLUMN.fullmatch(text)) and (rows := [row.strip() for row in column[2].split(r"\\")])[1:]:
        return Collection(r"\langle", r"\rangle", tuple(map(canonical, rows))) if all(rows) else None
    for opening, its_closing in BRACKETS.items():
        for closing in BRACKETS.values():
            mixed = opening in "([" and closing in ")]"  # a half-open interval
            if text.startswith(opening) and text.endswith(closing) and (mixed or closing == its_closing):
                items = _split(text[len(opening) : -len(closing)], ",")
                if items and (len(items) > 1 or opening == r"\{"):
                    return Collection(opening, closing, tuple(map(canonical, items)))
    items = _split(text, ",")
    return Collection("", "", tuple(map(canonical, items))) if items and len(items) > 1 else None


def without_parentheses(text: str) -> str:
    """(42) is 42; (1,2) stays a point, and (x+1)(x-1) a product."""
    while text.startswith("(") and text.endswith(")"):
        inside = _split(text[1:-1], ",")
        if inside is None or len(inside) != 1:
            break
        text = canonical(text[1:-1])
    return text


def _split(text: str, separator: str) -> list[str] | None:
    """The parts between separators outside all brackets; None if a bracket closes that was not opened, or a part is empty."""
    parts, depth, start, place = [], 0, 0, 0
    while place < len(text):
        if text[place] in "([{":
            depth += 1
        elif text[place] in ")]}":
            depth -= 1
            if depth < 0:
                return None
        elif depth == 0 and text.startswith(separator, place):
            parts.append(text[start:place])
            place += len(separator)
            start = place
            continue
        place += 2 if text[place] == "\\" and text[place + 1 : place + 2] not in "{}" else 1
    parts.append(text[start:])
    return parts if depth == 0 and all(part.strip() for part in parts) else None
