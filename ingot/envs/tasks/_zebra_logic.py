"""The logic of zebra puzzles: clues, all solutions of some clues, and a chain of reasons for the one solution.

No value belongs to two kinds, so a value is its text. A solution has for every kind the values of the houses from left to
right. The search keeps for every value the houses that are left for it, cuts them by each clue alone and by the other values of
the kind, and where that is not enough supposes one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import combinations

Solution = tuple[tuple[str, ...], ...]
Kinds = Sequence[Sequence[str]]  # the values of every kind
Left = dict[str, frozenset[int]]  # the houses that are left for every value
Clue = tuple[
    str, str, str | int
]  # ("at" | "not_at", value, house) or (a relation, value, value); values are all different

VALUES: dict[str, tuple[str, ...]] = {
    "name": ("Anna", "Boris", "Clara", "David", "Elena", "Frank", "Greta", "Hugo"),
    "drink": ("tea", "coffee", "milk", "water", "juice", "cocoa", "lemonade"),
    "pet": ("cat", "dog", "horse", "parrot", "rabbit", "zebra", "goldfish"),
    "color": ("red", "green", "blue", "yellow", "white", "purple", "orange"),
    "food": ("rice", "soup", "pizza", "salad", "bread", "cheese", "noodles"),
    "job": ("baker", "doctor", "farmer", "painter", "pilot", "teacher", "tailor"),
}
PHRASES = {
    "name": "{}",
    "drink": "the person who drinks {}",
    "pet": "the owner of the {}",
    "color": "the person in the {} house",
    "food": "the person who eats {}",
    "job": "the {}",
}
KIND_OF = {value: kind for kind, values in VALUES.items() for value in values}
RELATIONS: dict[str, Callable[[int, int], bool]] = {
    "same": lambda one, other: one == other,
    "not_same": lambda one, other: one != other,
    "left": lambda one, other: one + 1 == other,
    "beside": lambda one, other: abs(one - other) == 1,
    "before": lambda one, other: one < other,
}
SAYINGS = {
    "at": "{} lives in house {}.",
    "not_at": "{} does not live in house {}.",
    "same": "{} is {}.",
    "not_same": "{} is not {}.",
    "left": "{} lives directly to the left of {}.",
    "beside": "{} lives next to {}.",
    "before": "{} lives somewhere to the left of {}.",
}


def phrase(value: str) -> str:
    """A person, by one of the values."""
    return PHRASES[KIND_OF[value]].format(value)


def say(clue: Clue) -> str:
    """A clue in words."""
    relation, first, second = clue
    text = SAYINGS[relation].format(phrase(first), second if isinstance(second, int) else phrase(second))
    return text[0].upper() + text[1:]


def holds(clue: Clue, houses: dict[str, int]) -> bool:
    """Whether a clue is true of these houses of its values."""
    relation, first, second = clue
    if isinstance(second, int):
        return (houses[first] == second) == (relation == "at")
    return RELATIONS[relation](houses[first], houses[second])


def clues_of(solution: Solution) -> list[Clue]:
    """All clues that are true of a solution."""
    houses = {value: house for values in solution for house, value in enumerate(values, start=1)}
    numbers = range(1, len(solution[0]) + 1)
    found: list[Clue] = [
        (relation, value, house) for relation in ("at", "not_at") for value in houses for house in numbers
    ]
    for first, second in combinations(houses, 2):
        apart = KIND_OF[first] != KIND_OF[second]
        found += [(relation, first, second) for relation in ("same", "not_same") if apart]
        found += [(relation, *pair) for relation in ("left", "before") for pair in ((first, second), (second, first))]
        found.append(("beside", first, second))
    return [clue for clue in found if holds(clue, houses)]


def narrow(
    left: Left, kinds: Kinds, clues: Sequence[Clue], log: Callable[[str, str], None] | None = None
) -> str | None:
    """Cut the houses that are left, in place, until no clue cuts more; the value that has none, if there is one."""
    changed = True
    while changed:
        changed = False
        for value, houses, reason in _cuts(left, kinds, clues):
            if houses == left[value]:
                continue
            left[value], changed = houses, True
            if log is not None:
                log(value, reason)
            if not houses:
                return value
    return None


def _cuts(left: Left, kinds: Kinds, clues: Sequence[Clue]) -> Iterator[tuple[str, frozenset[int], str]]:
    """Each value with the houses that one clue, or the other values of its kind, leave for it."""
    for number, clue in enumerate(clues, start=1):
        relation, first, second = clue
        if isinstance(second, int):
            yield first, left[first] & {second} if relation == "at" else left[first] - {second}, f"clue {number}"
        else:
            yield first, _fitting(relation, left[first], left[second], False), f"clue {number}"
            yield second, _fitting(relation, left[second], left[first], True), f"clue {number}"
    for values in kinds:
        for value in values:
            others = [left[other] for other in values if other != value]
            taken = frozenset().union(*(houses for houses in others if len(houses) == 1))
            yield value, left[value] - taken, "the other houses are taken"
            if only := left[value].difference(*others):
                yield value, only, "nobody else can be there"


@cache
def _fitting(relation: str, houses: frozenset[int], others: frozenset[int], turned: bool) -> frozenset[int]:
    """The houses that have the relation to one of the others; `turned` if they are on its right side."""
    fits = RELATIONS[relation]
    return frozenset(
        house for house in houses if any(fits(other, house) if turned else fits(house, other) for other in others)
    )


def solutions(kinds: Kinds, clues: Sequence[Clue]) -> Iterator[dict[str, int]]:
    """The house of every value, for every solution."""

    def search(left: Left) -> Iterator[dict[str, int]]:
        if narrow(left, kinds, clues) is not None:
            return
        value = min(left, key=lambda value: (len(left[value]) == 1, len(left[value])))
        if len(left[value]) == 1:
            yield {value: min(houses) for value, houses in left.items()}
            return
        for house in sorted(left[value]):
            yield from search({**left, value: frozenset({house})})

    return search(everywhere(kinds))


def everywhere(kinds: Kinds) -> Left:
    """Every value in any house."""
    houses = frozenset(range(1, len(kinds[0]) + 1))
    return {value: houses for values in kinds for value in values}


def has_one_solution(kinds: Kinds, clues: Sequence[Clue]) -> bool:
    """Whether the clues leave exactly one solution."""
    found = solutions(kinds, clues)
    return next(found, None) is not None and next(found, None) is None


def reasons(kinds: Kinds, clues: Sequence[Clue]) -> list[str]:
    """Lines that lead from the clues to the one solution, each true."""
    left = everywhere(kinds)
    lines: list[str] = []

    def log(value: str, reason: str) -> None:
        lines.append(f"{reason}: {value} in {' or '.join(map(str, sorted(left[value])))}")

    narrow(left, kinds, clues, log)
    while some := sorted(
        (value for value in left if len(left[value]) > 1), key=lambda value: (len(left[value]), value)
    ):
        tries = ((value, house) for value in some for house in sorted(left[value]))
        refuted = ((value, house, narrow({**left, value: frozenset({house})}, kinds, clues)) for value, house in tries)
        value, house, empty = next((each for each in refuted if each[2] is not None), (some[0], 0, None))
        if empty is None:
            left[value] = frozenset({next(solutions(kinds, clues))[value]})
            log(value, "nothing else leads to a solution")
        else:
            left[value] -= {house}
            log(value, f"with {value} in {house} there would be no house for {empty}")
        narrow(left, kinds, clues, log)
    return lines
