r"""The numbers in a mathematical answer: their spelling, and their exact values.

    1 000, 3.141 59       digits in groups of three are one number
    1e3, 1.5e-3           powers of ten: 1\times 10^{3}. But 2e-1 is Euler's number twice, less one
    0.\bar{3}, 0.(3)      repeating decimals: 0.\overline{3}, which is 1/3; also 0.333\ldots

All functions take canonical text (answer_text.py), which `spelled` completes.
"""

from __future__ import annotations

import re
from fractions import Fraction

INTEGER = r"(?:\d{1,3}(?:,\d{3})+|\d+)"
NUMBER = re.compile(rf"([+-]?)(?:({INTEGER})?\.(\d+)|({INTEGER})\.?)", re.ASCII)
FRACTION = re.compile(
    rf"([+-]?)({INTEGER})??\s*(?:\\frac\{{([+-]?{INTEGER})\}}\{{([+-]?{INTEGER})\}}|([+-]?{INTEGER})/({INTEGER}))",
    re.ASCII,
)
DECIMAL = re.compile(r"(?<![\w.])(\d*)\.(\d+)(?![\w.])", re.ASCII)
REPEATING = re.compile(r"([+-]?)(\d*)\.(\d*)\\overline\{(\d+)\}", re.ASCII)
SPELLINGS = (
    (re.compile(r"(?<![\w.,)])(\d{1,3}(?: \d{3})+)(?![\w/])", re.ASCII), lambda found: found[1].replace(" ", "")),
    (
        re.compile(r"(?<=\d\.)(\d{3}(?: \d{3})* \d{1,3})(?![\w/.])", re.ASCII),
        lambda found: found[1].replace(" ", ""),
    ),
    (
        re.compile(r"(?<![\w.}])(\d*\.\d+|\d+(?=[eE]\d)|1)[eE]\+?(-?)0*(\d{1,4})(?![\w.])", re.ASCII),
        lambda found: rf"{found[1]}\times 10^{{{found[2]}{found[3]}}}",
    ),
    (re.compile(r"\\dot\{(\d)\}(\d*)\\dot\{(\d)\}", re.ASCII), r"\\overline{\1\2\3}"),
    (re.compile(r"(?<=\.)(\d*)\\(?:bar|dot|overline)\s*(?:\{(\d+)\}|(\d))", re.ASCII), r"\1\\overline{\2\3}"),
    (re.compile(r"(?<!\w)(\d+)\.\((\d+)\)", re.ASCII), r"\1.\\overline{\2}"),
    (re.compile(r"(?<=\.)(\d*?)(\d)\2\2+\\ldots(?![a-zA-Z])\s?", re.ASCII), r"\1\\overline{\2}"),
)


def spelled(text: str) -> str:
    """Canonical text with its numbers in one spelling."""
    for pattern, replacement in SPELLINGS:
        text = pattern.sub(replacement, text)
    return text


def plain_number(text: str) -> Fraction | None:
    """The exact value of a number that is written with digits: whole, decimal, fraction or mixed."""
    if match := NUMBER.fullmatch(text):
        sign, whole, decimals, integer = match.groups()
        digits = (whole or integer or "0").replace(",", "")
        value = Fraction(int(digits + (decimals or "")), 10 ** len(decimals or ""))
        return -value if sign == "-" else value
    if match := REPEATING.fullmatch(text):
        return _repeating(match)
    if match := FRACTION.fullmatch(text):
        sign, whole, *parts = match.groups()
        top, bottom = (int(part.replace(",", "")) for part in parts if part is not None)
        if bottom == 0 or (whole and (top < 0 or bottom < 0)):
            return None
        if whole and not re.search(r"\\frac|\s", text):  # 31/2 has no whole part
            return None
        value = Fraction(int((whole or "0").replace(",", ""))) + Fraction(top, bottom)
        return -value if sign == "-" else value
    return None


def exact_decimals(text: str) -> str:
    """Decimals as fractions, so that the library compares them exactly and does not round."""

    def fraction(match: re.Match[str]) -> str:
        whole, decimals = match.groups()
        return rf"(\frac{{{int(whole + decimals)}}}{{{10 ** len(decimals)}}})"

    def repeating(match: re.Match[str]) -> str:
        value = _repeating(match)
        return rf"(\frac{{{value.numerator}}}{{{value.denominator}}})"

    return DECIMAL.sub(fraction, REPEATING.sub(repeating, text))


def _repeating(match: re.Match[str]) -> Fraction:
    """0.1\\overline{6}: (16 - 1) / 90."""
    sign, whole, once, again = match.groups()
    value = Fraction(int(whole + once + again) - int(whole + once or "0"), 10 ** len(once) * (10 ** len(again) - 1))
    return -value if sign == "-" else value
