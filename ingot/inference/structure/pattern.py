r"""Regular expressions: a subset of Python's `re`, read into a grammar. Matching is that of `re.fullmatch`, with re.ASCII.

    literals, also beyond ASCII        .            any character but a newline
    [a-z_] [^a-z]                      \d \w \s and \D \W \S, ASCII as with re.ASCII, also within a class
    (…) (?:…) (?P<name>…)              a|b
    * + ? {m} {m,} {,n} {m,n}          lazy forms too (*? …): which text matches is the same
    ^ \A and $ \Z                      at the ends of the pattern or of its outermost alternatives
    \n \t \r \f \v \a \0 \xhh \uhhhh \Uhhhhhhhh, and a backslash before anything that is no letter or digit

Refused, with the offset: backreferences, look-around, word boundaries, flags, possessive and atomic forms, and anchors
elsewhere. They need more than an automaton reads off a text from left to right, or a meaning that a mask cannot keep.

JSON Schema's `pattern` may match anywhere in the string (`search`): what is not anchored is filled with any characters.
"""

from __future__ import annotations

import re

from ingot.inference.structure.characters import EVERY, Ranges, Spell, complement, single, union
from ingot.inference.structure.errors import StructureError
from ingot.inference.structure.grammar import Grammar, Node

DIGIT: Ranges = ((48, 57),)
WORD: Ranges = ((48, 57), (65, 90), (95, 95), (97, 122))
SPACE: Ranges = ((9, 13), (32, 32))
CLASSES = {"d": DIGIT, "w": WORD, "s": SPACE}
CLASSES |= {letter.upper(): complement(ranges) for letter, ranges in CLASSES.items()}
CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "a": "\a", "0": "\0"}
HEXADECIMAL = {"x": 2, "u": 4, "U": 8}
COUNTED = re.compile(r"\{([0-9]*)(,?)([0-9]*)\}(?<!\{\})")
FINAL_ANCHOR = re.compile(r"(\$|\\Z)(\||\Z)")
OCTAL = re.compile(r"0[0-7]")
DOT = complement(single("\n"))
REPEAT_AT_MOST = 1 << 30


def parse_pattern(
    pattern: str, grammar: Grammar, spell: Spell, *, search: bool = False, place: str = "pattern"
) -> Node:
    """The grammar's expression for `pattern`; `spell` writes a set of characters (characters.py)."""
    return _Parser(pattern, grammar, spell, place).whole(search)


class _Parser:
    """Recursive descent; `at` is the offset of the next character."""

    def __init__(self, pattern: str, grammar: Grammar, spell: Spell, place: str) -> None:
        self.pattern, self.grammar, self.spell, self.place = pattern, grammar, spell, place
        self.at = 0
        self.depth = 0

    def whole(self, search: bool) -> Node:
        anything = self.grammar.repeat(self.spell(EVERY), 0)
        options = []
        while True:
            begins = self._take("^", "\\A")
            middle = self._sequence()
            ends = self._take("$", "\\Z")
            before = [anything] if search and not begins else []
            after = [anything] if search and not ends else []
            options.append(self.grammar.sequence([*before, middle, *after]))
            if not self._take("|"):
                break
        if self.at < len(self.pattern):
            raise self._error(f"{self.pattern[self.at]!r} does not belong here")
        return self.grammar.choice(options)

    def _alternatives(self) -> Node:
        options = [self._sequence()]
        while self._take("|"):
            options.append(self._sequence())
        return self.grammar.choice(options)

    def _sequence(self) -> Node:
        items = []
        while self.at < len(self.pattern) and self.pattern[self.at] not in "|)":
            if self.depth == 0 and FINAL_ANCHOR.match(self.pattern, self.at):
                break
            items.append(self._repeated())
        return self.grammar.sequence(items)

    def _repeated(self) -> Node:
        item = self._atom()
        start = self.at
        bounds = self._bounds()
        if bounds is None:
            return item
        self._take("?")  # lazy: the same texts match
        if self._sees("+"):
            raise self._error("a possessive repetition", start, "leave out the '+'")
        after = self.at
        if self._bounds() is not None:
            raise self._error("a repetition right after another", after, "put the first in a group")
        return self.grammar.repeat(item, *bounds)

    def _bounds(self) -> tuple[int, int | None] | None:
        """The counts of a repetition sign, if one stands here; a brace that is no such sign is a literal, as in `re`."""
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(sign):
                return bounds
        counted = COUNTED.match(self.pattern, self.at)
        if counted is None:
            return None
        least = int(counted[1] or 0)
        most = (int(counted[3]) if counted[3] else None) if counted[2] else least
        if max(least, most or 0) > REPEAT_AT_MOST:
            raise self._error(f"more than {REPEAT_AT_MOST:,} repetitions")
        if most is not None and most < least:
            raise self._error("the least is above the most")
        self.at = counted.end()
        return least, most

    def _atom(self) -> Node:
        start = self.at
        character = self.pattern[self.at]
        self.at += 1
        if character == "(":
            return self._group(start)
        if character == "[":
            return self.spell(self._class(start))
        if character == ".":
            return self.spell(DOT)
        if character == "\\":
            return self.spell(self._escape(start))
        if character in "*+?" or COUNTED.match(self.pattern, start):
            raise self._error("nothing to repeat", start, "put a backslash before it to mean the character")
        if character in "^$":
            raise self._error(f"{character!r} within the pattern", start, "anchors only at the ends")
        return self.spell(self._known(single(character), start))

    def _group(self, start: int) -> Node:
        if self._take("?"):
            if self._take("P<"):
                closed = self.pattern.find(">", self.at)
                if not self.pattern[self.at : closed].isidentifier():
                    raise self._error("a bad group name", start)
                self.at = closed + 1
            elif not self._take(":"):
                kind = self.pattern[self.at : self.at + 2]
                look = kind[:1] in ("=", "!") or kind in ("<=", "<!")
                what = "look-around" if look else "a backreference" if kind == "P=" else f"the group (?{kind[:1]}…)"
                raise self._error(f"{what} is not supported", start, "write the pattern without it")
        self.depth += 1
        inside = self._alternatives()
        self.depth -= 1
        if not self._take(")"):
            raise self._error("a group that is not closed", start, "add ')'")
        return inside

    def _class(self, start: int) -> Ranges:
        negated = self._take("^")
        ranges: list[tuple[int, int]] = []
        first = True
        while first or not self._take("]"):
            if self.at >= len(self.pattern):
                raise self._error("a class that is not closed", start, "add ']'")
            first = False
            at = self.at
            low = self._member()
            if self._sees("-") and not self._sees("-]") and self.at + 1 < len(self.pattern):
                self.at += 1
                high = self._member()
                if not (_is_single(low) and _is_single(high)) or low[0][0] > high[0][0]:
                    raise self._error("a bad range of characters", at)
                ranges.append((low[0][0], high[0][0]))
            else:
                ranges += low
        members = union(ranges)
        return complement(members) if negated else members

    def _member(self) -> Ranges:
        start = self.at
        character = self.pattern[self.at]
        self.at += 1
        return self._escape(start, in_class=True) if character == "\\" else self._known(single(character), start)

    def _escape(self, start: int, in_class: bool = False) -> Ranges:
        if self.at >= len(self.pattern):
            raise self._error("a backslash at the end", start)
        letter = self.pattern[self.at]
        self.at += 1
        if letter in CLASSES:
            return CLASSES[letter]
        if letter in CONTROLS and not OCTAL.match(self.pattern, self.at - 1):
            return single(CONTROLS[letter])
        if in_class and letter == "b":
            return single("\b")
        if letter in HEXADECIMAL:
            digits = self.pattern[self.at : self.at + HEXADECIMAL[letter]]
            if len(digits) < HEXADECIMAL[letter] or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
                raise self._error(f"\\{letter} needs {HEXADECIMAL[letter]} hexadecimal digits", start)
            self.at += len(digits)
            if int(digits, 16) > 0x10FFFF:
                raise self._error("no such character", start)
            return self._known(single(chr(int(digits, 16))), start)
        if letter.isascii() and letter.isalnum():
            what = "backreferences" if letter.isdigit() else f"\\{letter}"
            raise self._error(f"{what} not supported here", start, "write the pattern without it")
        return self._known(single(letter), start)

    def _known(self, ranges: Ranges, start: int) -> Ranges:
        if not ranges:
            raise self._error("a lone surrogate is no character", start)
        return ranges

    def _sees(self, sign: str) -> bool:
        return self.pattern.startswith(sign, self.at)

    def _take(self, *signs: str) -> bool:
        for sign in signs:
            if self._sees(sign):
                self.at += len(sign)
                return True
        return False

    def _error(self, problem: str, at: int | None = None, fix: str | None = None) -> StructureError:
        offset = self.at if at is None else at
        return StructureError(
            problem,
            place=f"{self.place} {self.pattern!r}, offset {offset}",
            fix=fix or "see the supported subset of `re`",
        )


def _is_single(ranges: Ranges) -> bool:
    return len(ranges) == 1 and ranges[0][0] == ranges[0][1]
