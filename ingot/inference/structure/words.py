"""Words that satisfy several conditions at once: patterns, patterns that must not match, a length, a divisor.

Each condition is a deterministic automaton that reads a word character by character; the words of all of them are those of the
product of the automata, whose states are tuples of theirs. Characters that no condition tells apart are one *atom*: the automaton
of a pattern is that of automaton.py, with the numbers of the atoms in place of bytes.

A number N / 10^k, written with k digits after the point, is a multiple of M / 10^p just when N · 10^(p − k) is one of M. So the
remainder of the digits so far and the number of those after the point decide; no more than p of them are written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import count, pairwise
from typing import Any, Protocol

from ingot.inference.structure.automaton import DEAD, Automaton
from ingot.inference.structure.characters import EVERY, LAST, Ranges, Spell, intersect, single, union
from ingot.inference.structure.errors import StructureError
from ingot.inference.structure.grammar import Grammar, Node
from ingot.inference.structure.machine import machine
from ingot.inference.structure.pattern import parse_pattern

MOST_SETS = 300


class Condition(Protocol):
    """An automaton over atoms. `sets` are the sets of characters that it must be able to tell apart."""

    sets: Sequence[Ranges]

    def begin(self, atoms: Sequence[Ranges]) -> Any:
        """The first state; later atoms are given by their number."""

    def step(self, state: Any, atom: int) -> Any:
        """The state after one more character; None if it cannot follow."""

    def ends(self, state: Any) -> bool:
        """Whether the word may end here."""


class Matching:
    """A regular expression must match, in the whole or (`search`) somewhere; or it must not (`holds` is false)."""

    def __init__(self, pattern: str, place: str, *, search: bool = False, holds: bool = True) -> None:
        self._pattern, self._place, self._search, self._holds = pattern, place, search, holds
        sets: list[Ranges] = []
        grammar = Grammar()

        def collect(ranges: Ranges) -> Node:
            sets.append(ranges)
            return grammar.exact_bytes(1)

        self._parse(grammar, collect)
        self.sets: Sequence[Ranges] = sets

    def _parse(self, grammar: Grammar, spell: Spell) -> Node:
        return parse_pattern(self._pattern, grammar, spell, search=self._search, place=self._place)

    def begin(self, atoms: Sequence[Ranges]) -> int:
        """The start of an automaton over the numbers of the atoms."""
        grammar = Grammar()

        def spell(ranges: Ranges) -> Node:
            return grammar.exact_bytes(sum(1 << n for n, atom in enumerate(atoms) if intersect(atom[:1], ranges)))

        self._automaton = Automaton(grammar.prune(self._parse(grammar, spell)), reach=0)
        return self._automaton.start

    def step(self, state: int, atom: int) -> int | None:
        """From what cannot match any more everything leads to the same: what must not match goes on there."""
        after = self._automaton.step(state, atom)
        return None if after == DEAD and self._holds else after

    def ends(self, state: int) -> bool:
        """Whether the word so far matches, or does not."""
        return self._automaton.complete(state) == self._holds


class Length:
    """From `least` to `most` characters; the state is how many there are, as far as it matters."""

    sets: Sequence[Ranges] = ()

    def __init__(self, least: int, most: int | None) -> None:
        self._least, self._most = least, most

    def begin(self, atoms: Sequence[Ranges]) -> int:
        """None yet."""
        return 0

    def step(self, state: int, atom: int) -> int | None:
        """One more."""
        if self._most is None:
            return min(state + 1, self._least)
        return state + 1 if state < self._most else None

    def ends(self, state: int) -> bool:
        """Whether they are enough."""
        return state >= self._least


class Multiple:
    """A number without an exponent that a decimal fraction divides; the state is (remainder, digits after the point or None)."""

    sets: Sequence[Ranges] = tuple(single(character) for character in "0123456789.-")

    def __init__(self, divisor: Fraction) -> None:
        self._places = next(places for places in count() if (divisor * 10**places).denominator == 1)
        self._divisor = int(divisor * 10**self._places)

    def begin(self, atoms: Sequence[Ranges]) -> tuple[int, int | None]:
        """No digit yet."""
        self._characters = [chr(atom[0][0]) for atom in atoms]
        return 0, None

    def step(self, state: tuple[int, int | None], atom: int) -> tuple[int, int | None] | None:
        """One more character of the number."""
        (remainder, places), character = state, self._characters[atom]
        if character == "-":
            return state
        if character == "." and self._places:
            return remainder, 0
        if character not in "0123456789" or places == self._places:
            return None
        return (10 * remainder + int(character)) % self._divisor, None if places is None else places + 1

    def ends(self, state: tuple[int, int | None]) -> bool:
        """Whether the number so far is a multiple."""
        remainder, places = state
        return remainder * 10 ** (self._places - (places or 0)) % self._divisor == 0


def words(conditions: Sequence[Condition], grammar: Grammar, spell: Spell, place: str) -> Node:
    """The words that satisfy all the conditions; `spell` writes a set of characters (characters.py)."""
    atoms = split((ranges for condition in conditions for ranges in condition.sets), place)
    start = tuple(condition.begin(atoms) for condition in conditions)

    def moves(states: tuple[Any, ...]) -> list[tuple[Node, tuple[Any, ...]]]:
        reached: dict[tuple[Any, ...], list[tuple[int, int]]] = {}
        for number, atom in enumerate(atoms):
            after = tuple(one.step(state, number) for one, state in zip(conditions, states, strict=True))
            if None not in after:
                reached.setdefault(after, []).extend(atom)
        return [(spell(union(ranges)), after) for after, ranges in reached.items()]

    def ends(states: tuple[Any, ...]) -> bool:
        return all(one.ends(state) for one, state in zip(conditions, states, strict=True))

    return machine(grammar, start, moves, ends, place)


def split(sets: Iterable[Ranges], place: str) -> list[Ranges]:
    """All characters in disjoint sets, as few as there can be, of which each of the given sets is a union."""
    known = list(dict.fromkeys(sets))
    if len(known) > MOST_SETS:  # the work grows with their square
        raise StructureError(f"more than {MOST_SETS} sets of characters", place=place, fix="use classes such as [a-z]")
    borders = {edge for ranges in (*known, EVERY) for low, high in ranges for edge in (low, high + 1)}
    groups: dict[tuple[bool, ...], list[tuple[int, int]]] = {}
    for low, after in pairwise(sorted(borders | {0, LAST + 1})):
        here = intersect(((low, after - 1),), EVERY)
        groups.setdefault(tuple(bool(intersect(here, ranges)) for ranges in known), []).extend(here)
    return [union(ranges) for ranges in groups.values() if ranges]
