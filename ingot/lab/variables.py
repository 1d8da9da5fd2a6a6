"""What an intervention changes: the options in which two recipes differ, counted as a person would count them.

One variable is one option, wherever it stands: the same option in several blocks counts once. A part that is another kind
(attention to MLA, dense to mixture, AdamW to Muon), is switched on, or is taken out, counts once with all its options. Options
that say how work is done and not what it is (mesh, micro-batches, device) are no variables: they do not change a result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ingot.recipe.folders import input_names
from ingot.recipe.recipe import Recipe, RecipeStage

ABSENT = "absent"
SAME_DATA = (
    "model",
    "optimizer",
    "schedule",
    "z_loss",
    "precision",
    "float8_scaling",
    "lora",
    "train_only",
    "rope_base",
)
"""Options of a training stage with which the same seed still means the same rows in the same order."""
FOLLOWS = {"tokens": "steps"}
"""An option that another one is computed from: a change of both is a change of the first."""


@dataclass(frozen=True)
class Variable:
    """An option that two recipes differ in. `path` has `*` for the name of a block."""

    stage: str
    path: tuple[str, ...]
    before: Any
    after: Any

    @property
    def key(self) -> str:
        """As `--set` names it."""
        return ".".join((self.stage, *self.path))

    @property
    def keeps_data(self) -> bool:
        """Whether the same seed still gives the same data in the same order."""
        return bool(self.path) and self.path[0] in SAME_DATA


def differences(before: Recipe, after: Recipe) -> tuple[Variable, ...]:
    """The variables in which two recipes differ, in the order of the stages."""
    one, other = _stages(before), _stages(after)
    found: dict[tuple[str, tuple[str, ...]], Variable] = {}
    for name in dict.fromkeys((*one, *other)):
        if name not in one or name not in other:
            here, there = (ABSENT, "a stage") if name not in one else ("a stage", ABSENT)
            found[name, ()] = Variable(name, (), here, there)
            continue
        for path, left, right in _differ(_options(one[name]), _options(other[name]), ()):
            found.setdefault((name, path), Variable(name, path, left, right))
    computed = {(stage, (FOLLOWS[path[0]],)) for stage, path in found if path and path[0] in FOLLOWS}
    return tuple(variable for key, variable in found.items() if key not in computed)


def expand(keys: Mapping[str, Any], recipe: Recipe) -> list[str]:
    """Values by key as `--set` takes them: `*` spelt out, and a part of another kind first taken out, then put in."""
    from ingot.lab.grid import written

    stages = _stages(recipe)
    changes: list[str] = []
    for key, value in keys.items():
        stage, *path = key.split(".")
        options = _options(stages[stage]) if stage in stages else {}
        for found in _matches(path, options):
            full = ".".join((stage, *found))
            if _is_another_kind(_at(found, options), value):
                changes.append(f"{full}=null")
            changes.append(f"{full}={written(value)}")
    return changes


def _stages(recipe: Recipe) -> dict[str, RecipeStage]:
    """One stage for each name in the file: those that `after` made differ in their input alone."""
    return {stage.written_as or stage.name: stage for stage in recipe.stages}


def _options(stage: RecipeStage) -> dict[str, Any]:
    return {**stage.config.work(), "inputs": input_names(stage.inputs), "stage": stage.kind}


def _differ(before: Any, after: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    if before == after:
        return
    both = isinstance(before, Mapping) and isinstance(after, Mapping)
    if not both or before.get("kind") != after.get("kind"):
        yield path, before, after
        return
    for key in dict.fromkeys((*before, *after)):
        name = "*" if path[-1:] == ("blocks",) else key
        yield from _differ(before.get(key), after.get(key), (*path, name))


def _matches(path: Sequence[str], options: Any) -> list[tuple[str, ...]]:
    """The paths that a pattern means: `*` is every key of the mapping there."""
    if "*" not in path:
        return [tuple(path)]
    place = path.index("*")
    inside = _at(path[:place], options)
    names = (
        list(inside) if isinstance(inside, Mapping) else ["*"]
    )  # nothing there: the recipe's own error names the key
    return [
        (*path[:place], name, *rest) for name in names for rest in _matches(path[place + 1 :], _at((name,), inside))
    ]


def _at(path: Sequence[str], options: Any) -> Any:
    for key in path:
        options = options.get(key) if isinstance(options, Mapping) else None
    return options


def _is_another_kind(before: Any, after: Any) -> bool:
    both = isinstance(before, Mapping) and isinstance(after, Mapping)
    return both and after.get("kind", before.get("kind")) != before.get("kind")
