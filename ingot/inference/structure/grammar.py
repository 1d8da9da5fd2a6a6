"""The expressions that a structure is made of: byte sets, sequences, choices, counted repetitions and named rules.

    e  =  Bytes(set)  |  EMPTY (the empty text)  |  Pair(e, e)  |  Choice(e, …)  |  Repeat(e, least, most)  |  Rule(name)

Without Rule these are regular expressions over bytes; a rule that contains itself makes them context-free, as nested JSON
is. Equal expressions are one object (hash-consing), so that the automaton, which names its states by expressions, finds
equal states equal: after two bytes of any three-byte character it waits for the same `[80-BF]`.

Invariants: the item of a Repeat never matches the empty text, hence every round consumes a byte; every rule's text is at
least one byte and begins with one before the rule names itself (true of all JSON values); after `prune` every expression
matches at least one text, hence an automaton that follows the expressions never enters a dead end.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from ingot.inference.structure.errors import StructureError

ALL_BYTES = (1 << 256) - 1
PARTS_AT_MOST = 1 << 20  # of all expressions together: some ten seconds of work


class Node:
    """An expression. Two that are equal are the same object, so identity is equality."""

    __slots__ = ()


@dataclass(eq=False, slots=True)
class Bytes(Node):
    """One byte out of a set, written as an integer of 256 bits."""

    members: int


@dataclass(eq=False, slots=True)
class Pair(Node):
    """`first`, then `second`."""

    first: Node
    second: Node


@dataclass(eq=False, slots=True)
class Choice(Node):
    """Any of `options`; of no option: no text at all."""

    options: tuple[Node, ...]


@dataclass(eq=False, slots=True)
class Repeat(Node):
    """`item` from `least` to `most` times; a `most` of None sets no limit."""

    item: Node
    least: int
    most: int | None


@dataclass(eq=False, slots=True)
class Rule(Node):
    """What is defined under a name, perhaps later."""

    name: str
    body: Node | None = None


class Empty(Node):
    """The empty text."""

    __slots__ = ()


EMPTY = Empty()


class Grammar:
    """Makes expressions, each only once. `available` are the bytes that the vocabulary can write one at a time."""

    def __init__(self, available: int = ALL_BYTES) -> None:
        self.available = available
        self._made: dict[Hashable, Node] = {}
        self._rules: dict[str, Rule] = {}
        self._parts = 0

    def bytes_of(self, members: int) -> Node:
        """One byte of the set, as far as the vocabulary can write it."""
        return self.exact_bytes(members & self.available)

    def exact_bytes(self, members: int) -> Node:
        """One byte of the set, also such as no token writes alone."""
        return self._once((Bytes, members), partial(Bytes, members)) if members else self.nothing

    @property
    def nothing(self) -> Node:
        """The expression that matches no text."""
        return self._once((Choice,), partial(Choice, ()))

    def literal(self, text: bytes) -> Node:
        """Exactly these bytes."""
        return self.sequence([self.bytes_of(1 << byte) for byte in text])

    def sequence(self, nodes: Sequence[Node]) -> Node:
        """One after the other."""
        tail: Node = EMPTY
        for node in reversed(nodes):
            tail = self._pair(node, tail)
        return tail

    def _pair(self, first: Node, second: Node) -> Node:
        if first is self.nothing or second is self.nothing:
            return self.nothing
        if first is EMPTY or second is EMPTY:
            return second if first is EMPTY else first
        heads = []  # nest to the right, so that equal tails are equal objects
        while isinstance(first, Pair):
            heads.append(first.first)
            first = first.second
        for head in [first, *reversed(heads)]:
            second = self._once((Pair, head, second), partial(Pair, head, second))
        return second

    def choice(self, nodes: Iterable[Node]) -> Node:
        """Any of them. Byte sets are united; what is there twice is kept once."""
        options: dict[Node, None] = {}
        for node in nodes:
            options.update(dict.fromkeys(node.options if isinstance(node, Choice) else (node,)))
        members = 0
        for node in options:
            if isinstance(node, Bytes):
                members |= node.members
        kept = [self.exact_bytes(members)] if members else []
        kept += [node for node in options if not isinstance(node, Bytes)]
        if len(kept) == 1:
            return kept[0]
        return self._once((Choice, *kept), partial(Choice, tuple(kept)))

    def optional(self, node: Node) -> Node:
        """It or nothing."""
        return self.choice([node, EMPTY])

    def repeat(self, item: Node, least: int, most: int | None = None) -> Node:
        """`item` from `least` to `most` times. A round that may be empty is not counted: x{m,n} = (x without ε){0,n}."""
        if nullable(item):
            item, least = self._without_empty(item), 0
        if most is not None and most < least:
            return self.nothing
        if most == 0 or item is self.nothing:
            return EMPTY if least == 0 else self.nothing
        if least == most == 1:
            return item
        if (least, most) == (0, 1):
            return self.optional(item)
        return self._once((Repeat, item, least, most), partial(Repeat, item, least, most))

    def literals(self, texts: Iterable[bytes]) -> Node:
        """Any of these texts, as a tree that shares their beginnings."""
        groups: dict[bytes, list[bytes]] = {}
        for text in texts:
            groups.setdefault(text[:1], []).append(text)
        branches = []
        for first, group in groups.items():
            shared = _shared_beginning(group) if first else b""  # one text alone shares all of itself
            tails = {text[len(shared) :] for text in group} - {b""}
            tail = self.literals(sorted(tails)) if tails else EMPTY
            ends = not tails or shared in group
            branches.append(self.sequence([self.literal(shared), self.optional(tail) if ends else tail]))
        return self.choice(branches)

    def rule(self, name: str) -> Rule:
        """The rule of a name, whether or not it is defined yet."""
        return self._rules.setdefault(name, Rule(name))

    def _without_empty(self, node: Node) -> Node:
        """The texts of `node` but the empty one."""
        match node:
            case Pair(first, second) if nullable(node):
                shorter = self._without_empty(second)
                return self.choice([self._pair(self._without_empty(first), second), shorter])
            case Choice(options):
                return self.choice([self._without_empty(option) for option in options])
            case Repeat(item, least, most):
                return self.repeat(item, max(1, least), most)
            case Empty():
                return self.nothing
        return node

    def _once(self, key: Hashable, make: Callable[[], Node]) -> Node:
        node = self._made.get(key)
        if node is None:
            node = self._made[key] = make()
            self._parts += len(parts(node))
            if self._parts > PARTS_AT_MOST:
                raise StructureError(
                    f"an expression of more than {PARTS_AT_MOST:,} parts would be needed",
                    place="structure",
                    fix="give fewer or shorter values, fewer optional properties, or a shorter pattern",
                )
        return node

    def prune(self, root: Node) -> Node:
        """`root` without all that can never be completed; `nothing` if no text is left.

        What can be completed is the least fixed point: byte sets can, and what is made only of such parts can.
        """
        users: dict[Node, list[Node]] = {root: []}  # of each expression within, those that it is a part of
        found = [root]
        for node in found:
            for part in parts(node):
                if part not in users:
                    users[part] = []
                    found.append(part)
                users[part].append(node)
        alive: set[Node] = set()
        waiting = list(found)
        while waiting:
            node = waiting.pop()
            if node not in alive and _completable(node, alive):
                alive.add(node)
                waiting += users[node]
        for node in found:
            if isinstance(node, Choice):
                node.options = tuple(option for option in node.options if option in alive)
            elif isinstance(node, Repeat) and node.item not in alive:
                node.most = 0
        return root if root in alive else self.nothing


def _shared_beginning(texts: list[bytes]) -> bytes:
    low, high = min(texts), max(texts)
    length = next((at for at, byte in enumerate(low) if byte != high[at]), len(low))
    return low[:length]


def parts(node: Node) -> tuple[Node, ...]:
    """The expressions that `node` is made of."""
    match node:
        case Pair(first, second):
            return (first, second)
        case Choice(options):
            return options
        case Repeat(item):
            return (item,)
        case Rule(_, body) if body is not None:
            return (body,)
    return ()


def _completable(node: Node, alive: set[Node]) -> bool:
    """Whether some text matches, given that those of `alive` have one."""
    match node:
        case Choice(options):
            return any(option in alive for option in options)
        case Repeat(item, least, _):
            return least == 0 or item in alive
        case Rule(_, body):
            return body in alive
    return all(part in alive for part in parts(node))


def nullable(node: Node) -> bool:
    """Whether the empty text matches."""
    while isinstance(node, Pair):
        if not nullable(node.first):
            return False
        node = node.second
    match node:
        case Choice(options):
            return any(nullable(option) for option in options)
        case Repeat(_, least, _):
            return least == 0
    return node is EMPTY
