"""Arrays that need a memory of their elements: `uniqueItems` and `contains`, as machines (machine.py).

Unique elements out of finitely many values: the state is the set of those that were used. `contains`: the state is how many
elements there are and how many of them were counted. Without a `maxContains` an element that matches may be counted or not, and
the array is allowed if some way of counting reaches `minContains`: that is exact, and nothing has to be negated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ingot.inference.structure.conjunction import Schema, both
from ingot.inference.structure.grammar import Node
from ingot.inference.structure.machine import machine
from ingot.inference.structure.values import Values


def unique(values: Values, options: Sequence[Any], least: int, most: int | None, place: str) -> Node:
    """Arrays of different ones of these values, at least and at most so many."""
    nodes = [values.constants([option]) for option in options]

    def moves(used: frozenset[int]) -> Iterable[tuple[Node, frozenset[int]]]:
        if most is None or len(used) < most:
            for number, node in enumerate(nodes):
                if number not in used:
                    yield values.element(node, first=not used), used | {number}

    return values.bracketed(machine(values.grammar, frozenset[int](), moves, lambda used: len(used) >= least, place))


def containing(
    values: Values,
    schema: Schema,
    item: Callable[[int], Any],
    value: Callable[[Any, str], Node],
    place: str,
) -> Node:
    """Arrays of which so many elements satisfy `contains`; `item(n)` is the schema of element n, `value` reads one."""
    wanted, pointer = schema["contains"], f"{place}/contains"
    low, high = schema["minContains"], schema.get("maxContains")
    least, most = schema.get("minItems", 0), schema.get("maxItems")
    longest = max(len(schema.get("prefixItems", [])), least, 1) if most is None else most  # then all are alike

    def moves(state: tuple[int, int]) -> Iterable[tuple[Node, tuple[int, int]]]:
        length, count = state
        if length == most or item(length) is False:
            return
        after, first = min(length + 1, longest), length == 0
        if count < (low if high is None else high):
            node = value(both(item(length), wanted), pointer)
            yield values.element(node, first=first), (after, count + 1)
        other = item(length) if high is None else both(item(length), {"not": wanted})
        yield values.element(value(other, pointer), first=first), (after, count)

    def ends(state: tuple[int, int]) -> bool:
        return state[0] >= least and state[1] >= low

    return values.bracketed(machine(values.grammar, (0, 0), moves, ends, pointer))
