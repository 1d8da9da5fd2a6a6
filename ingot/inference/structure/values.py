"""JSON texts as expressions: strings, arrays, objects, given values and any value, all in one form of white space.

    {"name": "Ada", "born": 1815, "tags": ["a", "b"]}

After each `:` and `,` there may be one blank or none; there is no other white space, so a model cannot lose itself in it.
Both compact JSON and what Python's json.dumps writes have this form.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ingot.inference.structure.characters import EVERY, Alphabet, complement, intersect, single
from ingot.inference.structure.grammar import EMPTY, Node
from ingot.inference.structure.numbers import ANY_NUMBER
from ingot.inference.structure.pattern import parse_pattern
from ingot.inference.structure.words import Condition, words


@dataclass(frozen=True)
class Property:
    """A member of an object under a fixed name."""

    name: str
    value: Node
    required: bool


@dataclass(frozen=True)
class Others:
    """Members under other names: their names (the quoted text) and values, at least and at most so many."""

    name: Node
    value: Node
    least: int = 0
    most: int | None = None


class Values:
    """Writes JSON into a grammar."""

    def __init__(self, alphabet: Alphabet) -> None:
        self.alphabet, self.grammar = alphabet, alphabet.grammar
        blank = self.grammar.optional(self.grammar.literal(b" "))
        self.comma = self.grammar.sequence([self.grammar.literal(b","), blank])
        self.colon = self.grammar.sequence([self.grammar.literal(b":"), blank])
        self._quote = self.grammar.literal(b'"')
        self._character = alphabet.any_quoted()

    def string(self, least: int = 0, most: int | None = None) -> Node:
        """A string of so many characters, in any spelling."""
        return self._quoted(self.grammar.repeat(self._character, least, most))

    def matching(self, pattern: str, place: str, *, search: bool) -> Node:
        """A string that a regular expression matches, in its shortest spelling."""
        spell = self.alphabet.quoted
        return self._quoted(parse_pattern(pattern, self.grammar, spell, search=search, place=place))

    def string_of(self, conditions: Sequence[Condition], place: str) -> Node:
        """A string that satisfies several conditions, in its shortest spelling."""
        return self._quoted(words(conditions, self.grammar, self.alphabet.quoted, place))

    def string_but(self, names: Sequence[str]) -> Node:
        """A string other than these, in its shortest spelling."""
        if not names:
            return self.string()
        return self._quoted(self._but(names))

    def written(self, pattern: str) -> Node:
        """A number given by a regular expression over its characters."""
        return parse_pattern(pattern, self.grammar, self.alphabet.plain)

    def number_of(self, conditions: Sequence[Condition], place: str) -> Node:
        """A number whose characters satisfy several conditions."""
        return words(conditions, self.grammar, self.alphabet.plain, place)

    def constants(self, values: Sequence[Any]) -> Node:
        """Any of these values. Strings and numbers share their beginnings."""
        simple = [json.dumps(value, ensure_ascii=False) for value in values if not isinstance(value, dict | list)]
        nested = [self._constant(value) for value in values if isinstance(value, dict | list)]
        return self.grammar.choice([self.alphabet.literals(simple), *nested])

    def _constant(self, value: Any) -> Node:
        if isinstance(value, dict):
            members = [Property(name, self._constant(member), required=True) for name, member in value.items()]
            return self.object(members, None)
        if isinstance(value, list):
            return self.array([self._constant(item) for item in value], None, len(value), len(value))
        return self.alphabet.literals([json.dumps(value, ensure_ascii=False)])

    def array(self, prefix: Sequence[Node], item: Node | None, least: int, most: int | None) -> Node:
        """An array that begins with `prefix` and goes on with `item`s, of at least and at most so many elements."""
        grammar = self.grammar
        first = prefix[0] if prefix else item
        if first is None or most == 0:
            return grammar.literal(b"[]") if least == 0 else grammar.nothing
        written = max(1, len(prefix))
        after: Node = EMPTY if least <= written else grammar.nothing  # what may follow once so many are written
        if item is not None:
            again = grammar.sequence([self.comma, item])
            after = grammar.repeat(again, max(0, least - written), None if most is None else max(0, most - written))
        for index in reversed(range(1, len(prefix))):
            after = grammar.sequence([self.comma, prefix[index], after])
            after = after if index < least else grammar.optional(after)
            after = EMPTY if most is not None and index >= most else after
        inside = grammar.sequence([first, after])
        inside = inside if least else grammar.optional(inside)
        return self.bracketed(inside)

    def element(self, node: Node, *, first: bool) -> Node:
        """An element of an array, with the comma before it."""
        return node if first else self.grammar.sequence([self.comma, node])

    def bracketed(self, elements: Node) -> Node:
        """An array of these elements."""
        return self.grammar.sequence([self.grammar.literal(b"["), elements, self.grammar.literal(b"]")])

    def object(self, properties: Sequence[Property], others: Others | None) -> Node:
        """An object of the properties, in this order, then of others.

        first[i]: the members from i on, where none is written yet; after[i]: what follows when one is. A comma is read
        before it is decided which of the optional properties comes next.
        """
        grammar = self.grammar
        first: Node | None = None  # None: no member can follow
        after: Node = EMPTY
        needed = False  # whether one of the members from here on must come
        if others is not None:
            other = self._member(others.name, others.value)
            rest = None if others.most is None else others.most - 1
            again = grammar.sequence([self.comma, other])
            first = grammar.sequence([other, grammar.repeat(again, max(0, others.least - 1), rest)])
            after, needed = grammar.repeat(again, others.least, others.most), others.least > 0
        for one in reversed(properties):
            name = self.alphabet.literals([json.dumps(one.name, ensure_ascii=False)])
            member = grammar.sequence([self._member(name, one.value), after])
            first = member if one.required or first is None else grammar.choice([member, first])
            needed = needed or one.required
            after = grammar.sequence([self.comma, first])
            after = after if needed else grammar.optional(after)
        inside = EMPTY if first is None else first if needed else grammar.optional(first)
        return grammar.sequence([grammar.literal(b"{"), inside, grammar.literal(b"}")])

    def anything(self) -> Node:
        """Any JSON value."""
        rule = self.grammar.rule("any value")
        if rule.body is None:
            number = self.written(ANY_NUMBER)
            array, mapping = self.array([], rule, 0, None), self.object([], Others(self.string(), rule))
            names = self.constants([True, False, None])
            rule.body = self.grammar.choice([mapping, array, self.string(), number, names])
        return rule

    def _member(self, name: Node, value: Node) -> Node:
        return self.grammar.sequence([name, self.colon, value])

    def _quoted(self, text: Node) -> Node:
        return self.grammar.sequence([self._quote, text, self._quote])

    def _but(self, names: Sequence[str]) -> Node:
        """Characters that do not spell one of `names`: they leave the tree of names, end too soon, or go on too long."""
        grammar, spell = self.grammar, self.alphabet.quoted
        anything = grammar.repeat(spell(EVERY), 0)
        branches: list[Node] = [] if "" in names else [EMPTY]
        heads = dict.fromkeys(name[0] for name in names if name)
        left = EVERY
        for head in heads:
            tails = [name[1:] for name in names if name[:1] == head]
            branches.append(grammar.sequence([spell(single(head)), self._but(tails)]))
            left = intersect(left, complement(single(head)))
        branches.append(grammar.sequence([spell(left), anything]))
        return grammar.choice(branches)
