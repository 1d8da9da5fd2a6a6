"""The trials of a sweep: every combination of the values that options are given, for every seed.

`--set sft.optimizer.lr=1e-4,3e-4` gives an option several values and makes it an axis; `--set sft.steps=100` is the same in all
trials. Commas inside brackets, braces and quotes belong to a value: `--set sft.optimizer.betas=[0.9,0.95],[0.9,0.99]`.

A seed is that of the stages that train and that the axes reach: the stages that an axis changes and all that build on them. What
comes before is the same work in all trials and runs once; what measures stays as it is, so that trials are compared on the same
questions.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from ingot.recipe.problems import Problems
from ingot.recipe.recipe import Recipe
from ingot.recipe.stages import Table
from ingot.recipe.tree import parse_yaml
from ingot.workspace.config import content_hash
from ingot.workspace.errors import RecipeError

TRAINED = ("checkpoint", "reward_model")
WORD = re.compile(r"(?!(?:null|true|false)$)[A-Za-z][\w./:-]*", re.ASCII | re.IGNORECASE)
FOREIGN = re.compile(r"[^A-Za-z0-9._=,+-]+")
LONGEST_NAME = 120


@dataclass(frozen=True)
class Axis:
    """An option and the values that it takes in turn."""

    key: str
    values: tuple[Any, ...]

    @property
    def stage(self) -> str:
        """The stage whose option it is; `inputs` for an input of the recipe."""
        return self.key.split(".")[0]

    @property
    def numeric(self) -> bool:
        """Whether its values can stand on a scale."""
        return all(isinstance(value, int | float) and not isinstance(value, bool) for value in self.values)


@dataclass(frozen=True)
class Trial:
    """One run of a sweep: a value for every axis, and a seed (None: the recipe's own)."""

    values: tuple[tuple[str, Any], ...]  # (key, value), in the order of the axes
    seed: int | None = None

    @property
    def label(self) -> str:
        """`lr=0.0003, steps=100`: without the seed, which is not what a sweep chooses."""
        names = short_names([key for key, _ in self.values])
        return ", ".join(f"{names[key]}={written(value)}" for key, value in self.values)

    @property
    def folder(self) -> str:
        """A name for its folder."""
        parts = [self.label.replace(", ", ",")] + ([] if self.seed is None else [f"seed={self.seed}"])
        name = ",".join(part for part in parts if part)
        plain = FOREIGN.sub("_", name)[:LONGEST_NAME]
        return plain if plain == name else f"{plain}-{content_hash(name)}"

    def changes(self) -> list[str]:
        """Its values as `--set` takes them."""
        return [f"{key}={written(value)}" for key, value in self.values]


def read_axes(changes: Sequence[str]) -> tuple[list[Axis], list[str]]:
    """The options that are given several values, and the changes that are the same in all trials."""
    problems = Problems()
    axes: list[Axis] = []
    fixed: list[str] = []
    for text in changes:
        place = f"--set {text}"
        key, equals, listed = text.partition("=")
        node = parse_yaml(f"[{listed}]", place, problems, lines=False)
        values = [child.plain() for child in node.content] if isinstance(node.content, list) else []
        if not equals or len(values) < 2:
            fixed.append(text)  # the check of the recipe reports what is wrong with it
        elif key.strip() in ("name", "seed"):
            fix = "write --seeds 1,2,3" if key.strip() == "seed" else "all runs of a sweep share one run folder"
            problems.add(f"{key.strip()} cannot be swept", place=place, fix=fix)
        elif len({written(value) for value in values}) < len(values):
            problems.add("a value is given twice", place=place, fix="give each value once")
        elif any(axis.key == key.strip() for axis in axes):
            problems.add(f"{key.strip()} is swept twice", place=place, fix="give all its values in one --set")
        else:
            axes.append(Axis(key.strip(), tuple(values)))
    problems.raise_if_any()
    return axes, fixed


def read_seeds(text: str | None) -> tuple[int, ...]:
    """`1,2,3` to numbers."""
    if text is None:
        return ()
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() for part in parts) or len(set(parts)) < len(parts):
        raise RecipeError("expected different whole numbers", place=f"--seeds {text}", fix="write --seeds 1,2,3")
    return tuple(map(int, parts))


def make_trials(axes: Sequence[Axis], seeds: Sequence[int]) -> list[Trial]:
    """Every combination, all of them with one seed before any with the next: a picture of the whole comes early."""
    combinations = list(itertools.product(*(axis.values for axis in axes)))
    keys = [axis.key for axis in axes]
    return [
        Trial(tuple(zip(keys, values, strict=True)), seed) for seed in (seeds or (None,)) for values in combinations
    ]


def reached_stages(recipe: Recipe, axes: Sequence[Axis]) -> list[str]:
    """The stages whose work the axes change, in order; without axes all of them."""
    named = {axis.stage for axis in axes}
    reached: list[str] = []
    for stage in recipe.stages:
        changed = not axes or "inputs" in named or named & {stage.name, stage.written_as}
        if changed or any(needed in reached for needed in stage.needed_stages()):
            reached.append(stage.name)
    return reached


def seeded_stages(recipe: Recipe, axes: Sequence[Axis], needed: Collection[str], table: Table) -> list[str]:
    """The stages that take a trial's seed: those that train, are reached by an axis and needed for the metric."""
    found = [
        name
        for name in reached_stages(recipe, axes)
        if name in needed and set(TRAINED) & set(table.find(recipe.stage(name).kind).makes)
    ]
    if not found:
        raise RecipeError(
            "no stage that trains comes after what is swept: seeds would change nothing",
            place="--seeds",
            fix="leave --seeds out, or sweep an option of a stage that trains or comes before one",
        )
    return found


def written(value: Any) -> str:
    """A value as `--set` reads it."""
    return value if isinstance(value, str) and WORD.fullmatch(value) else json.dumps(value, ensure_ascii=False)


def short_names(keys: Sequence[str]) -> dict[str, str]:
    """The last word of each key; as many more as tell two apart."""
    names: dict[str, str] = {}
    for key in keys:
        words = key.split(".")
        others = [other.split(".") for other in keys if other != key]
        length = next(n for n in range(1, len(words) + 1) if all(words[-n:] != other[-n:] for other in others))
        names[key] = ".".join(words[-length:])
    return names
