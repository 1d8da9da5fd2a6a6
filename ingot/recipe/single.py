"""One kind of stage by itself: from a recipe, or from a plain file with just the stage's options.

From a recipe, only its stages of that kind run; what they take from earlier stages must be finished. A plain file is a
mapping without `stages:`; its keys are the options of the stage, plus `inputs`, `seed` and `name` if wanted.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ingot.recipe.load import build_recipe
from ingot.recipe.problems import Problems
from ingot.recipe.read import Change, Changes, anchored, apply_changes, parse_changes, read_file, set_value
from ingot.recipe.recipe import Recipe
from ingot.recipe.stages import STAGES, Table
from ingot.recipe.tree import Node, to_node

RECIPE_PARTS = (("name",), ("seed",))


def load_stage(
    path: Path | str,
    kind: str,
    changes: Changes = (),
    *,
    inputs: Mapping[str, str] | None = None,
    options: Mapping[str, Any] | None = None,
    seed: int | None = None,
    table: Table = STAGES,
) -> tuple[Recipe, frozenset[str]]:
    """The recipe to run and the names of its stages of `kind`. `inputs` fills roles with paths (or stages' names);
    `options` are set in each of those stages."""
    path = Path(path)
    problems = Problems()
    root = read_file(path, problems)
    parsed = parse_changes(changes, problems)
    problems.raise_if_any()
    if "stages" not in root.entries:
        root = _as_recipe(root, kind, problems)
        parsed = _below(kind, parsed)
    root = apply_changes(root, parsed, problems)
    if seed is not None:
        root = set_value(root, ("seed",), Node(seed, f"--seed {seed}"), problems)
    for name in _stages_of_kind(root, kind):
        for role, source in (inputs or {}).items():
            place = f"--input {role}={source}"
            root = set_value(root, ("stages", name, "inputs", role), Node(source, place), problems)
        for key, value in (options or {}).items():
            root = set_value(root, ("stages", name, key), Node(value, f"--{key} {value}"), problems)
    recipe = build_recipe(root, path, problems, table)
    names = frozenset(stage.name for stage in recipe.stages if stage.kind == kind)
    if not names:
        kinds = sorted({stage.kind for stage in recipe.stages})
        problems.add(f"the recipe has no {kind} stage", place=str(path), fix=f"it has: {', '.join(kinds)}")
        problems.raise_if_any()
    return recipe, names


def make_stage(
    kind: str,
    name: str,
    options: Mapping[str, Any],
    changes: Changes = (),
    *,
    inputs: Mapping[str, str],
    seed: int | None = None,
    table: Table = STAGES,
) -> Recipe:
    """A recipe of one stage that no file holds: its options are words of a command line. `name` is the run's."""
    problems = Problems()
    here = Path.cwd() / "command line"
    given = {"name": name, **options, "inputs": dict(inputs)} | ({} if seed is None else {"seed": seed})
    root = _as_recipe(anchored(to_node(given, "command line"), here.parent), kind, problems)
    root = apply_changes(root, _below(kind, parse_changes(changes, problems)), problems)
    problems.raise_if_any()
    return build_recipe(root, here, problems, table)


def _below(kind: str, changes: list[Change]) -> list[Change]:
    """Changes of a stage's options as those of a recipe with this stage."""
    return [each if each.path in RECIPE_PARTS else Change((kind, *each.path), each.value) for each in changes]


def _as_recipe(options: Node, kind: str, problems: Problems) -> Node:
    """A recipe of one stage around its options."""
    entries = options.entries
    written = entries.get("stage")
    if written is not None and written.content != kind:
        fix = f"run `ingot {written.content}` with this file"
        problems.add(f"these are the options of a {written.content} stage, not {kind}", place=written.place, fix=fix)
        problems.raise_if_any()
    outside = {key: node for key, node in entries.items() if (key,) in RECIPE_PARTS}
    inside = {key: node for key, node in entries.items() if key not in outside}
    stages = Node({kind: Node(inside, options.place)}, options.place)
    return Node({**outside, "stages": stages}, options.place)


def _stages_of_kind(root: Node, kind: str) -> list[str]:
    stages = root.entries.get("stages", Node({}, "")).entries
    return [name for name, node in stages.items() if node.entries.get("stage", Node(name, "")).content == kind]
