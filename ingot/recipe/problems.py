"""Collects all problems of a recipe, so that they can be fixed in one go."""

from __future__ import annotations

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
        """Add a problem and continue."""
        self.found.append(RecipeError(problem, place=place, fix=fix))

    def raise_if_any(self) -> None:
        """Raise what was found: a single `RecipeError`, or a `RecipeProblems` that holds them all."""
        if len(self.found) == 1:
            raise self.found[0]
        if self.found:
            raise RecipeProblems(self.found)
