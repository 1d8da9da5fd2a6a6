r"""Other spellings of a reference answer, by rules that a mathematician would call no change.

Every rule takes an answer as MATH or GSM8K write it and gives another spelling, or None where it does not apply. The rules know
nothing of the verifier.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from fractions import Fraction

WHOLE_FRACTION = re.compile(r"(-?)\\d?frac\{(\d+)\}\{(\d+)\}")
WHOLE_NUMBER = re.compile(r"-?\d+")
UNIT = re.compile(r"\s*\\(?:text|mbox)\{\s*[a-z. ]+\}(?:\^\{?\d\}?)?$")


def _around(before: str, after: str) -> Callable[[str], str | None]:
    return lambda answer: f"{before}{answer}{after}"


def _replaced(old: str, new: str) -> Callable[[str], str | None]:
    return lambda answer: answer.replace(old, new) if old in answer else None


def _substituted(pattern: str, new: str) -> Callable[[str], str | None]:
    return lambda answer: changed if (changed := re.sub(pattern, new, answer)) != answer else None


def _slash(answer: str) -> str | None:
    match = WHOLE_FRACTION.fullmatch(answer)
    return f"{match[1]}{match[2]}/{match[3]}" if match else None


def _minus_above(answer: str) -> str | None:
    match = WHOLE_FRACTION.fullmatch(answer)
    return rf"\frac{{-{match[2]}}}{{{match[3]}}}" if match and match[1] else None


def _decimal(answer: str) -> str | None:
    match = WHOLE_FRACTION.fullmatch(answer)
    if match is None or 10**6 % Fraction(int(match[2]), int(match[3])).denominator:
        return None
    value = abs(Fraction(int(match[2]), int(match[3])) * 10**6)
    digits = f"{int(value):07d}"
    return f"{match[1]}{digits[:-6]}.{digits[-6:].rstrip('0') or '0'}"


def _reduced_not(answer: str) -> str | None:
    match = WHOLE_FRACTION.fullmatch(answer)
    return rf"{match[1]}\frac{{{3 * int(match[2])}}}{{{3 * int(match[3])}}}" if match else None


def _thousands(comma: str) -> Callable[[str], str | None]:
    def spell(answer: str) -> str | None:
        plain = re.sub(r"\{,\}|,\\!|,(?=\d{3}(?:,|$))", "", answer)
        return f"{int(plain):,}".replace(",", comma) if WHOLE_NUMBER.fullmatch(plain) and len(plain) > 4 else None

    return spell


def _point_zero(answer: str) -> str | None:
    return f"{answer}.0" if WHOLE_NUMBER.fullmatch(answer) else None


def _with(suffix: str) -> Callable[[str], str | None]:
    numeric = re.compile(r"-?\d+(?:\.\d+)?|-?\\frac\{\d+\}\{\d+\}")
    return lambda answer: answer + suffix if numeric.fullmatch(answer) else None


def _no_unit(answer: str) -> str | None:
    return UNIT.sub("", answer) if UNIT.search(answer) and len(UNIT.sub("", answer)) else None


def _elements(answer: str) -> list[str] | None:
    """The elements of a list without brackets around or within."""
    return (
        answer.split(",")
        if re.fullmatch(r"[^()\[\]]*", answer) and "{,}" not in answer and re.search(r",(?!\\!|\d{3})", answer)
        else None
    )


def _shuffled(answer: str) -> str | None:
    elements = _elements(answer)
    return ", ".join(each.strip() for each in elements[::-1]) if elements and "\\text" not in answer else None


def _as_set(answer: str) -> str | None:
    elements = _elements(answer)
    return rf"\{{{', '.join(elements)}\}}" if elements and "\\" not in answer else None


def _and(answer: str) -> str | None:
    elements = _elements(answer)
    return f"{', '.join(elements[:-1])} and {elements[-1]}" if elements and "\\text" not in answer else None


def _commuted(answer: str) -> str | None:
    match = re.fullmatch(r"([0-9a-z^]+|\d*\\sqrt\{\d+\})\s*\+\s*([0-9a-z^]+|\d*\\sqrt\{\d+\})", answer)
    return f"{match[2]} + {match[1]}" if match else None


RULES: dict[str, Callable[[str], str | None]] = {
    "dollars": _around("$", "$"),
    "display dollars": _around("$$ ", " $$"),
    "parentheses": _around(r"\( ", r" \)"),
    "box": _around(r"\boxed{", "}"),
    "period": lambda answer: None if answer.endswith(".") else f"{answer}.",
    "blanks": _around("  ", "\n"),
    "bold": _around("**", "**"),
    "displaystyle": _around(r"\displaystyle ", ""),
    "dfrac": _replaced(r"\frac", r"\dfrac"),
    "tfrac": _replaced(r"\frac", r"\tfrac"),
    "frac": _replaced(r"\dfrac", r"\frac"),
    "short frac": _substituted(r"\\frac\{(\d)\}\{(\d)\}", r"\\frac\1\2"),
    "slash": _slash,
    "minus above": _minus_above,
    "decimal": _decimal,
    "not reduced": _reduced_not,
    "left right": _substituted(r"(?<!\\left)(?<!\w)\(([^()]*)\)(?!\w)", r"\\left(\1\\right)"),
    "no left right": _substituted(r"\\(?:left|right)(?![a-z])", ""),
    "thousands": _thousands(","),
    "thousands in braces": _thousands("{,}"),
    "thousands in LaTeX": _thousands(r",\!"),
    "point zero": _point_zero,
    "blank after comma": _substituted(r"(?<!\{),(?=\S)(?!\\!|\d{3})", ", "),
    "thin spaces": _substituted(r"(?<=[0-9a-z)}])\s*\+\s*(?=[0-9a-z\\(])", r"\\,+\\,"),
    "order": _shuffled,
    "set": _as_set,
    "and": _and,
    "sum": _commuted,
    "name": lambda answer: (
        f"x = {answer}" if re.fullmatch(r"[^=<>,a-zA-Z]*(\\[a-z]+[^=<>,a-zA-Z]*)*", answer) else None
    ),
    "unit": _with(r" \text{ cm}"),
    "unit in words": _with(" apples"),
    "no unit": _no_unit,
    "percent": _with(r"\%"),
    "no percent": _substituted(r"\\?%$", ""),
    "degrees": _with(r"^\circ"),
    "braced degrees": _replaced(r"^\circ", r"^{\circ}"),
    "no degrees": _substituted(r"\^\{?\\circ\}?$", ""),
    "dollar sign": lambda answer: rf"\${answer}" if re.fullmatch(r"\d+(\.\d+)?", answer) else None,
    "minus sign": _substituted(r"^-", "−"),
    "square root": _substituted(r"\\sqrt\{(\d)\}", r"\\sqrt\1"),
    "pi": _substituted(r"\\pi(?![a-z])", "π"),
    "mbox": _replaced(r"\text{", r"\mbox{"),
    "textbf": _substituted(r"^\\text\{", r"\\textbf{"),
    "no text": _substituted(r"^\\text\{([^{}]*)\}$", r"\1"),
}


def spellings(answer: str) -> dict[str, str]:
    """Every rule's spelling of the answer, by the name of the rule."""
    made = ((name, rule(answer)) for name, rule in RULES.items())
    return {name: spelling for name, spelling in made if spelling is not None and spelling != answer}


def perturbed(answer: str, rng: random.Random) -> str | None:
    """The answer with one digit changed; None if it has no digit outside a command's name or a unit."""
    places = [
        match.start()
        for match in re.finditer(r"\d", re.sub(r"\\text\{[^{}]*\}(\^\d)?", lambda m: " " * len(m[0]), answer))
    ]
    if not places:
        return None
    place = rng.choice(places)
    digit = rng.choice([digit for digit in "123456789" if digit != answer[place]])
    return answer[:place] + digit + answer[place + 1 :]
