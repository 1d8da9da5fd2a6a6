"""Sets of characters, and how they are spelled in bytes: as UTF-8, or as UTF-8 within a JSON string.

A set is a sorted tuple of disjoint ranges of code points. Surrogates are in none: UTF-8 has no bytes for them. A range of
code points becomes sequences of byte ranges, split where the number of bytes changes and where the leading bytes do:

    U+0800–U+FFFF  =  E0 [A0-BF] [80-BF]  |  [E1-EC] [80-BF] [80-BF]  |  ED [80-9F] [80-BF]  |  [EE-EF] [80-BF] [80-BF]

Within a JSON string (RFC 8259) a quotation mark, a backslash and the characters below U+0020 are escaped, by a letter
where there is one. Every character has one spelling here; where any string goes, the others are allowed too (`any_quoted`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

from ingot.inference.structure.errors import StructureError
from ingot.inference.structure.grammar import Grammar, Node

Ranges = tuple[tuple[int, int], ...]
Spell = Callable[[Ranges], Node]

LAST = 0x10FFFF
EVERY: Ranges = ((0, 0xD7FF), (0xE000, LAST))
ESCAPED: Ranges = ((0, 0x1F), (ord('"'), ord('"')), (ord("\\"), ord("\\")))
LENGTH_ENDS = (0x7F, 0x7FF, 0xFFFF, LAST)  # the last code point of one, two, three and four bytes


def union(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """The ranges sorted, joined where they touch, and without surrogates."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return intersect(tuple(merged), EVERY)


def intersect(left: Ranges, right: Ranges) -> Ranges:
    """What is in both."""
    pairs = ((max(a, c), min(b, d)) for a, b in left for c, d in right)
    return tuple(sorted((low, high) for low, high in pairs if low <= high))


def complement(ranges: Ranges) -> Ranges:
    """Every other character."""
    gaps, start = [], 0
    for low, high in ranges:
        gaps.append((start, low - 1))
        start = high + 1
    return intersect(tuple((low, high) for low, high in [*gaps, (start, LAST)] if low <= high), EVERY)


def single(character: str) -> Ranges:
    """The set of one character."""
    return union([(ord(character), ord(character))])


class Alphabet:
    """Spells characters in a grammar.

    `whole` are characters that the vocabulary has as tokens though it may lack their bytes (sentencepiece without byte
    tokens); other characters are allowed as far as their bytes are.
    """

    def __init__(self, grammar: Grammar, whole: frozenset[int] = frozenset()) -> None:
        self.grammar = grammar
        self.whole = sorted(code for code in whole if any(not grammar.available >> b & 1 for b in chr(code).encode()))
        self._plain: dict[Ranges, Node] = {}
        self._quoted: dict[Ranges, Node] = {}

    def plain(self, ranges: Ranges) -> Node:
        """One character of the set in UTF-8."""
        if ranges not in self._plain:
            grammar = self.grammar
            options = [
                grammar.sequence([grammar.bytes_of(_span(*span)) for span in spans])
                for low, high in ranges
                for spans in utf8_spans(low, high)
            ]
            options += [
                grammar.sequence([grammar.exact_bytes(1 << byte) for byte in chr(code).encode()])
                for code in self.whole
                if any(low <= code <= high for low, high in ranges)
            ]
            self._plain[ranges] = grammar.choice(options)
        return self._plain[ranges]

    def literals(self, texts: Iterable[str]) -> Node:
        """Any of these texts, as far as the vocabulary can write it."""
        texts = list(texts)
        for text in texts:
            if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
                raise StructureError("a lone surrogate is no character", place=ascii(text), fix="leave it out")
        if self.whole:
            return self.grammar.choice([self.grammar.sequence([self.plain(single(c)) for c in text]) for text in texts])
        return self.grammar.literals([text.encode() for text in texts])

    def quoted(self, ranges: Ranges) -> Node:
        """One character of the set within a JSON string."""
        if ranges not in self._quoted:
            escapes = [
                json.dumps(chr(code))[1:-1].encode()
                for low, high in intersect(ranges, ESCAPED)
                for code in range(low, high + 1)
            ]
            plain = self.plain(intersect(ranges, complement(ESCAPED)))
            self._quoted[ranges] = self.grammar.choice([plain, self.grammar.literals(escapes)])
        return self._quoted[ranges]

    def any_quoted(self) -> Node:
        """Any character within a JSON string, in any spelling: itself, \\n, \\u00e9, or a pair of surrogates."""
        grammar = self.grammar
        digit = _set(b"0123456789abcdefABCDEF")
        hexadecimal = grammar.bytes_of(digit)
        below_d = grammar.bytes_of(digit & ~_set(b"dD"))
        d, below_8 = grammar.bytes_of(_set(b"dD")), grammar.bytes_of(_set(b"01234567"))
        high, low = grammar.bytes_of(_set(b"89abAB")), grammar.bytes_of(_set(b"cdefCDEF"))
        pair = [d, high, hexadecimal, hexadecimal, grammar.literal(b"\\u"), d, low, hexadecimal, hexadecimal]
        unicode = [
            grammar.sequence([below_d, hexadecimal, hexadecimal, hexadecimal]),
            grammar.sequence([d, below_8, hexadecimal, hexadecimal]),
            grammar.sequence(pair),
        ]
        escape = [
            grammar.bytes_of(_set(b'"\\/bfnrt')),
            grammar.sequence([grammar.literal(b"u"), grammar.choice(unicode)]),
        ]
        return grammar.choice(
            [self.plain(complement(ESCAPED)), grammar.sequence([grammar.literal(b"\\"), grammar.choice(escape)])]
        )


def utf8_spans(low: int, high: int) -> list[list[tuple[int, int]]]:
    """The code points from `low` to `high` (no surrogates) as sequences of byte ranges."""
    for end in LENGTH_ENDS:
        if low <= end < high:
            return utf8_spans(low, end) + utf8_spans(end + 1, high)
    if high <= 0x7F:
        return [[(low, high)]]
    # split until the trailing bytes run over their full range wherever a leading byte differs
    for shift in (6, 12, 18):
        rest = (1 << shift) - 1
        if (low & ~rest) != (high & ~rest):
            if low & rest:
                return utf8_spans(low, low | rest) + utf8_spans((low | rest) + 1, high)
            if high & rest != rest:
                return utf8_spans(low, (high & ~rest) - 1) + utf8_spans(high & ~rest, high)
    return [list(zip(chr(low).encode(), chr(high).encode(), strict=True))]


def _span(low: int, high: int) -> int:
    """The set of the bytes from `low` to `high`."""
    return (1 << high + 1) - (1 << low)


def _set(members: bytes) -> int:
    return sum(1 << byte for byte in set(members))
