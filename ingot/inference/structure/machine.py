"""Finite machines as expressions: what needs a memory that expressions alone do not have.

A machine is a start, moves from each state to others, each by an expression that is read on the way, and states in which it may
end. It is written as a grammar with a rule for each state s, of what may still follow and is not empty:

    rule(s)  =  label            for each move (label, t) of s where t may end
             |  label rule(t)    for each move (label, t) of s

A state is any value that can be hashed: a remainder, a counter, the set of values that were used. States are met one after the
other from the start, and only so many: a machine beyond that is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

from ingot.inference.structure.errors import StructureError
from ingot.inference.structure.grammar import Grammar, Node, Rule

STATES_AT_MOST = 5000
State = TypeVar("State", bound=Hashable)


def machine(
    grammar: Grammar,
    start: State,
    moves: Callable[[State], Iterable[tuple[Node, State]]],
    ends: Callable[[State], bool],
    place: str,
) -> Node:
    """The texts that lead from `start` to a state that `ends`. No label may match the empty text."""
    rules = {start: Rule("a machine's start")}
    waiting = [start]
    for state in waiting:
        options = []
        for label, target in moves(state):
            if target not in rules:
                rules[target] = Rule("a machine's state")
                waiting.append(target)
            options.append(grammar.sequence([label, rules[target]]))
            if ends(target):
                options.append(label)
        if len(rules) > STATES_AT_MOST:
            raise StructureError(
                f"a machine of more than {STATES_AT_MOST:,} states would be needed",
                place=place,
                fix="loosen it: smaller counts, a smaller divisor, fewer values, or a simpler pattern",
            )
        rules[state].body = grammar.choice(options)
    return grammar.optional(rules[start]) if ends(start) else rules[start]
