"""Everything that is wrong with a recipe, collected, so that a person repairs it in one go."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from ingot.workspace.errors import RecipeError


class RecipeProblems(RecipeError):
    """Several problems of one recipe; each of `problems` has its own place and fix."""

    def __init__(self, problems: Iterable[RecipeError]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join([f"{len(self.problems)} problems in the recipe", *map(str, self.problems)]))


class Problems:
    """The problems found so far."""

    def __init__(self) -> None:
        self.found: list[RecipeError] = []

    def add(self, problem: str, *, place: str, fix: str | None = None) -> None:
        """Remember a problem and go on looking."""
        self.found.append(RecipeError(problem, place=place, fix=fix))

    def raise_if_any(self) -> None:
        """Raise what was found: a single `RecipeError`, or a `RecipeProblems` that holds them all."""
        if len(self.found) == 1:
            raise self.found[0]
        if self.found:
            raise RecipeProblems(self.found)


def nearest(word: str, names: Iterable[str]) -> str | None:
    """The name that `word` most likely means: spelt almost alike, or one is the initials of the other (`lr`)."""
    names = list(names)
    close = difflib.get_close_matches(word, names, n=1)
    if close:
        return close[0]
    short = [name for name in names if _initials(name) == word or _initials(word) == name]
    return short[0] if len(short) == 1 else None


def _initials(name: str) -> str:
    return "".join(part[:1] for part in name.split("_"))


def suggestion(word: str, names: Iterable[str], what: str = "known") -> str:
    """What to write instead of the unknown `word`: the nearest name, or the list of all."""
    names = list(names)
    right = nearest(word, names)
    if right is not None:
        return f"did you mean {right}?"
    return f"{what}: {', '.join(names)}" if names else f"{what}: none"
