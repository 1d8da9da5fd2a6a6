"""The words that RULER draws from: the lists of the package `wonderwords`."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files
from itertools import accumulate
from typing import overload

from ingot.workspace.errors import ArtifactError
from ingot.workspace.packages import install_extra


@cache
def word_list(name: str) -> tuple[str, ...]:
    """The words of a list: noun, adjective or verb."""
    try:
        text = (files("wonderwords.assets") / f"{name}list.txt").read_text(encoding="utf-8")
    except ModuleNotFoundError as error:
        raise ArtifactError(
            "RULER draws its words from the package wonderwords, which is not installed",
            fix=install_extra("evals"),
        ) from error
    return tuple(word for line in text.splitlines() if (word := line.strip()))


class Pairs(Sequence[str]):
    """Every adjective with every noun ("quick-fox") in alphabetical order, six million of them, without making them.

    Pairs of one adjective stand together. Only where one adjective continues another ("old", "old-fashioned") they mix:
    such families are sorted as a whole.
    """

    def __init__(self, adjectives: Iterable[str], nouns: Iterable[str]) -> None:
        self.nouns = sorted(set(nouns))
        members: dict[str, list[str]] = {}
        for adjective in sorted(set(adjectives), key=len):
            root = next((each for each in members if adjective.startswith(f"{each}-")), adjective)
            members.setdefault(root, []).append(adjective)
        self.families = [members[root] for root in sorted(members, key=lambda each: f"{each}-")]
        self.mixed = {
            number: sorted({f"{adjective}-{noun}" for adjective in family for noun in self.nouns})
            for number, family in enumerate(self.families)
            if len(family) > 1
        }
        sizes = [len(self.mixed.get(number, self.nouns)) for number in range(len(self.families))]
        self.starts = [0, *accumulate(sizes)]

    def __len__(self) -> int:
        return self.starts[-1]

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...

    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        if not 0 <= index < len(self):
            raise IndexError(index)
        number = bisect_right(self.starts, index) - 1
        inside = index - self.starts[number]
        return (
            self.mixed[number][inside] if number in self.mixed else f"{self.families[number][0]}-{self.nouns[inside]}"
        )


@cache
def pairs() -> Pairs:
    """The keys of needles."""
    return Pairs(word_list("adjective"), word_list("noun"))
