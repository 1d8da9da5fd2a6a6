"""Reads and writes the order of layers as text.

`dense*3 (kda*3 mla)*6` is three dense layers, then six times kda, kda, kda, mla.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby

TOKEN = re.compile(r"\s*([()]|\*\s*\d+|[A-Za-z_][\w-]*|\S)")
LONGEST = 10_000


def expand_layers(text: str) -> tuple[str, ...]:
    """The names in order. A wrong spelling is a ValueError that says where."""
    stack: list[list[str]] = [[]]
    last: list[str] = []  # what a following *n repeats
    for match in TOKEN.finditer(text):
        token = match[1]
        if token == "(":
            stack.append([])
            last = []
        elif token == ")":
            if len(stack) == 1:
                raise ValueError(f"layers: a ) without its ( in {text!r}, character {match.start(1) + 1}")
            last = stack.pop()
            stack[-1] += last
        elif token.startswith("*"):
            count = int(token[1:]) if token[1:].strip().isdigit() else 0
            if not last or count < 1:
                raise ValueError(f"layers: {token!r} repeats nothing in {text!r}, character {match.start(1) + 1}")
            stack[-1] += last * (count - 1)
            last = []
        elif re.fullmatch(r"[A-Za-z_][\w-]*", token):
            last = [token]
            stack[-1].append(token)
        else:
            raise ValueError(f"layers: {token!r} is not a name in {text!r}, character {match.start(1) + 1}")
        if len(stack[-1]) > LONGEST:
            raise ValueError(f"layers: more than {LONGEST} layers in {text!r}")
    if len(stack) > 1:
        raise ValueError(f"layers: a ( without its ) in {text!r}")
    if not stack[0]:
        raise ValueError("layers: no layer is named")
    return tuple(stack[0])


def spell_layers(names: Sequence[str]) -> str:
    """A short spelling of `names`: repeated runs, and the repeated group that saves most."""
    best = _runs(names)
    for start in range(min(len(names), 8)):
        for size in range(2, (len(names) - start) // 2 + 1):
            count = 1
            while names[start + count * size : start + (count + 1) * size] == names[start : start + size]:
                count += 1
            if count > 1:
                head, tail = names[:start], names[start + count * size :]
                group = f"({_runs(names[start : start + size])})*{count}"
                spelt = " ".join(part for part in (_runs(head), group, _runs(tail)) if part)
                best = min(best, spelt, key=len)
    return best


def _runs(names: Sequence[str]) -> str:
    counted = [(name, len(list(run))) for name, run in groupby(names)]
    return " ".join(name if count == 1 else f"{name}*{count}" for name, count in counted)
