"""The automaton of a grammar: its states are made when they are first met.

A *cell* is an expression to be matched and the cell that comes after it, down to END: a stack as a linked list. What may
come next in a text is a set of cells whose expressions are byte sets, perhaps with END. That set is the state. A byte
takes each cell that holds it to its successor, whose expression is unfolded until byte sets stand in front again:

    unfold(Pair(a, b) · rest)        =  unfold(a · b · rest)
    unfold(Choice(a, …) · rest)      =  unfold(a · rest) ∪ …
    unfold(Repeat(a, l, m) · rest)   =  unfold(a · Repeat(a, l−1, m−1) · rest) ∪ (unfold(rest) if l = 0)
    unfold(Rule(a) · rest)           =  unfold(a · rest)

For regular expressions these are the partial derivatives of Antimirov (TCS 155, 1996) and the states are those of a
deterministic automaton; with recursive rules the cells are a stack and the states those of a pushdown automaton, run on
all its stacks at once. Counted repetitions carry their counters in the cell, so `{0,5000}` costs no more than `{0,5}`.

Invariant: in a pruned grammar every cell can be completed, hence every state that a byte leads to can be.
"""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from ingot.inference.structure.errors import StructureError
from ingot.inference.structure.grammar import Bytes, Choice, Node, Pair, Repeat, Rule

UNKNOWN, DEAD = 0, 1  # entries of the table that are no states: not yet worked out, and not allowed
FIRST_STATE = 2
END = 0  # the cell behind the last expression: the text may end
ENDLESS = -1  # a counter that never comes down to 0
STATES_AT_MOST = 20_000  # then the automaton is made anew from the states in use; a row of the table is a kilobyte
CELLS_IN_STATE = 5_000  # a state of more readings than this comes from counting within counting; refused

CONTINUATION = slice(0x80, 0xC0)
UTF8_FORMS = (  # first bytes, what the second may be, and how many bytes there are
    (range(0xC2, 0xE0), CONTINUATION, 2),
    (range(0xE0, 0xE1), slice(0xA0, 0xC0), 3),
    (range(0xE1, 0xED), CONTINUATION, 3),
    (range(0xED, 0xEE), slice(0x80, 0xA0), 3),
    (range(0xEE, 0xF0), CONTINUATION, 3),
    (range(0xF0, 0xF1), slice(0x90, 0xC0), 4),
    (range(0xF1, 0xF4), CONTINUATION, 4),
    (range(0xF4, 0xF5), slice(0x80, 0x90), 4),
)

Cell = tuple[Node | None, int, int, int]  # expression, for a Repeat how often at least and at most, and the next cell


_serials = itertools.count()  # tell automata apart in the cache of masks


class Automaton:
    """States by number, and two tables of them.

    `next` [states, 256] says where each byte leads, and `keeps` [states, 4 words of 64 bits] after which first bytes every
    character leads back to the state. Their rows are filled by `fill_row`, for masks, which try every byte; `step` works
    out single entries, for texts.
    """

    def __init__(self, root: Node, reach: int) -> None:
        """`reach` is the length of the longest token in bytes."""
        self.root, self.reach = root, reach
        self.serial = next(_serials)
        self.cells: list[Cell] = [(None, 0, 0, END)]
        self.next: NDArray[np.int32] = np.zeros((64, 256), dtype=np.int32)
        self.keeps: NDArray[np.uint64] = np.zeros((64, 4), dtype=np.uint64)
        self._cell_of: dict[Cell, int] = {}
        self._unfolded: dict[int, frozenset[int]] = {END: frozenset([END])}
        self._members: list[frozenset[int]] = [frozenset()] * FIRST_STATE
        self._state_of: dict[frozenset[int], int] = {}
        self._steps: dict[tuple[int, int], int] = {}
        self._near: dict[int, int] = {}
        self._near_cells: dict[int, int] = {END: END}
        self.start = self._state(self._unfold(self._cell(root, END)))

    @property
    def full(self) -> bool:
        """Whether so many states were met that it is time for a new automaton."""
        return len(self._members) > STATES_AT_MOST

    def complete(self, state: int) -> bool:
        """Whether the text may end in this state."""
        return END in self._members[state]

    def step(self, state: int, byte: int) -> int:
        """The state after one more byte; DEAD if it is not allowed."""
        known = self._steps.get((state, byte))
        if known is None:
            bit = 1 << byte
            targets = [self._after(cell) for cell in self._members[state] if self._bytes(cell) & bit]
            known = self._steps[state, byte] = self._state(frozenset().union(*targets)) if targets else DEAD
        return known

    def fill_row(self, state: int) -> None:
        """Work out where every byte leads from `state`."""
        by_bytes: dict[int, set[int]] = {}
        for cell in self._members[state]:
            if cell != END:
                by_bytes.setdefault(self._bytes(cell), set()).update(self._after(cell))
        groups: list[tuple[int, frozenset[int]]] = []  # disjoint sets of bytes and where each leads
        for members, target in by_bytes.items():
            rest, split = members, []
            for other, known in groups:
                both = other & rest
                split += [(both, known | target)] if both else []
                split += [(other ^ both, known)] if other ^ both else []
                rest ^= both
            groups = split + ([(rest, frozenset(target))] if rest else [])
        row = np.full(256, DEAD, dtype=np.int32)
        for members, target_cells in groups:
            row[_indices(members)] = self._state(target_cells)
        self.next[state] = row
        self.keeps[state] = np.packbits(self._kept_by(state), bitorder="little").view(np.uint64)

    def _kept_by(self, state: int) -> NDArray[np.bool_]:
        """For each byte whether all characters that begin with it lead from `state` back to it."""
        row = self.next[state]
        kept = row == state
        if kept.any():
            for leads, seconds, length in UTF8_FORMS:
                for lead in leads:
                    kept[lead] = self._returns(int(row[lead]), seconds, length - 1, state)
        return kept

    def _returns(self, state: int, following: slice, count: int, goal: int) -> bool:
        """Whether all ways to end a character, by `count` bytes of which the next is one of `following`, lead to `goal`."""
        if count == 0 or state == DEAD:
            return state == goal
        if self.next[state, 0] == UNKNOWN:
            self.fill_row(state)
        targets = set(self.next[state, following].tolist())
        return all(self._returns(target, CONTINUATION, count - 1, goal) for target in targets)

    def near(self, state: int) -> int:
        """A state with the same mask, and the same for all counters that no token can exhaust."""
        known = self._near.get(state)
        if known is None:
            known = self._state(frozenset(self._near_cell(cell) for cell in self._members[state]))
            self._near[state] = known
        return known

    def adopt(self, other: Automaton, state: int) -> int:
        """The number here of another automaton's state, for the same grammar."""
        return self._state(frozenset(self._copy(other, cell) for cell in other._members[state]))

    def _bytes(self, cell: int) -> int:
        node = self.cells[cell][0]
        return node.members if isinstance(node, Bytes) else 0

    def _after(self, cell: int) -> frozenset[int]:
        return self._unfold(self.cells[cell][3])

    def _state(self, members: frozenset[int]) -> int:
        state = self._state_of.get(members)
        if state is None:
            if len(members) > CELLS_IN_STATE:
                raise StructureError(
                    f"the text so far can be read in more than {CELLS_IN_STATE:,} ways",
                    fix="simplify the pattern: avoid a counted repetition within another",
                )
            state = self._state_of[members] = len(self._members)
            self._members.append(members)
            if state >= len(self.next):
                self.next = np.concatenate([self.next, np.zeros_like(self.next)])
                self.keeps = np.concatenate([self.keeps, np.zeros_like(self.keeps)])
        return state

    def _cell(self, node: Node, rest: int) -> int:
        if isinstance(node, Repeat):
            return self._number((node, node.least, ENDLESS if node.most is None else node.most, rest))
        return self._number((node, 0, 0, rest))

    def _number(self, cell: Cell) -> int:
        number = self._cell_of.get(cell)
        if number is None:
            number = self._cell_of[cell] = len(self.cells)
            self.cells.append(cell)
        return number

    def _unfold(self, start: int) -> frozenset[int]:
        known = self._unfolded.get(start)
        if known is not None:
            return known
        found, waiting, seen = [], [start], {start}
        while waiting:
            number = waiting.pop()
            node, least, most, rest = self.cells[number]
            following: list[int] = []
            match node:
                case Bytes() | None:
                    found.append(number)
                case Pair(first, second):
                    following = [self._cell(first, self._cell(second, rest))]
                case Choice(options):
                    following = [self._cell(option, rest) for option in options]
                case Repeat(item):
                    if least == 0:
                        following.append(rest)
                    if most != 0:
                        again = (node, least - (least > 0), most - (most > 0), rest)  # ENDLESS stays
                        following.append(self._cell(item, self._number(again)))
                case Rule(_, body) if body is not None:
                    following = [self._cell(body, rest)]
                case _:  # the empty text
                    following = [rest]
            for one in following:
                if one not in seen:
                    seen.add(one)
                    waiting.append(one)
        self._unfolded[start] = result = frozenset(found)
        return result

    def _near_cell(self, number: int) -> int:
        """The cell where no counter that a token cannot bring to 0 ever gets there, nor in the cells after it."""
        trail = []
        while number not in self._near_cells:
            trail.append(number)
            number = self.cells[number][3]
        near = self._near_cells[number]
        for number in reversed(trail):
            node, least, most, _ = self.cells[number]
            least, most = (ENDLESS if counter > self.reach else counter for counter in (least, most))
            near = self._number((node, least, most, near))
            self._near_cells[number] = near
        return near

    def _copy(self, other: Automaton, number: int) -> int:
        trail = []
        while number != END:
            trail.append(other.cells[number])
            number = other.cells[number][3]
        copy = END
        for node, least, most, _ in reversed(trail):
            copy = self._number((node, least, most, copy))
        return copy


def _indices(members: int) -> NDArray[np.intp]:
    """The bytes in a set of 256 bits."""
    bits = np.unpackbits(np.frombuffer(members.to_bytes(32, "little"), dtype=np.uint8), bitorder="little")
    return np.flatnonzero(bits)
