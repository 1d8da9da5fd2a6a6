r"""Inequalities in one variable as the sets that they describe, in canonical text (answer_text.py).

    x < 3                 (-\infty,3)
    1 \ge x > 0           (0,1]
    x \ne 2               (-\infty,2)\cup(2,\infty)
    \mathbb{R}            (-\infty,\infty); also "all real numbers", as "no solution" is the empty set

What has no letter alone on one side, as 2x < 6, is left to the library.
"""

from __future__ import annotations

import re

SIGN = re.compile(r"\\(le|ge|ne)(?![a-z])\s?|([<>])")
VARIABLE = re.compile(r"(?!e$)[a-zA-Z]|\\(?!pi$|infty$)[a-z]+")
LINE = r"(-\infty,\infty)"
SETS = {
    **dict.fromkeys((r"\mathbbR", "allreals", "allrealnumbers", "therealnumbers", "realnumbers", "reals"), LINE),
    **dict.fromkeys(("nosolution", "nosolutions", "norealsolution", "norealsolutions"), r"\emptyset"),
    **dict.fromkeys(("emptyset", "theemptyset"), r"\emptyset"),
}
OPENS, CLOSES = {"<": "(", "le": "["}, {"<": ")", "le": "]"}
TURNED = {">": "<", "ge": "le"}


def as_set(text: str) -> tuple[str, str]:
    """The set in canonical text, and the variable of the inequality; the text itself and "" if it is no inequality as above."""
    bare = re.sub(r"\\text|[{}\s]", "", text)
    if found := SETS.get(bare) or SETS.get(bare.lower()):
        return found, ""
    signs = [found[1] or found[2] for found in SIGN.finditer(text)]
    sides = [side.strip() for side in SIGN.split(text)[::3]]
    if not all(sides) or any("," in side for side in sides):
        return text, ""
    if all(sign in TURNED for sign in signs):
        signs, sides = [TURNED[sign] for sign in reversed(signs)], sides[::-1]
    named = [bool(VARIABLE.fullmatch(side)) for side in sides]
    match signs, named:
        case ["ne"], [True, False]:
            name, bound = sides
            return rf"(-\infty,{bound})\cup({bound},\infty)", name
        case ["<" | "le"], [True, False]:
            return rf"(-\infty,{sides[1]}{CLOSES[signs[0]]}", sides[0]
        case ["<" | "le"], [False, True]:
            return rf"{OPENS[signs[0]]}{sides[0]},\infty)", sides[1]
        case ["<" | "le", "<" | "le"], [False, True, False]:
            low, name, high = sides
            opening = "(" if low == r"-\infty" else OPENS[signs[0]]
            return f"{opening}{low},{high}{CLOSES[signs[1]]}", name
    return text, ""
