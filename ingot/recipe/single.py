"""One kind of stage by itself: from a recipe, or from a plain file with just the stage's options.

From a recipe, only its stages of that kind run; what they take from earlier stages must be finished. A plain file is a
mapping without `stages:`; its keys are the options of the stage, plus `inputs`, `seed` and `name` if wanted. The options may
stand below the stage's kind, as in a recipe: `curate:` and then its options.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

from ingot.recipe.load import build_recipe
from ingot.recipe.problems import Problems
from ingot.recipe.read import ROOT_KEYS, Change, Changes, anchored, apply_changes, parse_changes, read_file, set_value
from ingot.recipe.recipe import Recipe
from ingot.recipe.stages import STAGES, Table
from ingot.recipe.tree import Node, to_node
from ingot.workspace.errors import RecipeError

RECIPE_PARTS = (("name",), ("seed",))
DATA = frozenset({".jsonl", ".csv", ".tsv", ".parquet", ".arrow", ".txt", ".html", ".gz", ".zst", ".bz2", ".xz"})


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
    _check_no_data(path, kind, table)
    problems = Problems()
    root = read_file(path, problems)
    parsed = parse_changes(changes, problems)
    problems.raise_if_any()
    if "stages" not in root.entries:
        own = table.find(kind).config.model_fields
        if _lacks_stages(root, own, table):
            parts = {key: node for key, node in root.entries.items() if key in ROOT_KEYS}
            stages = {key: node for key, node in root.entries.items() if key not in ROOT_KEYS}
            root = Node({**parts, "stages": Node(stages, root.place)}, root.place)
        else:
            _check_one_place(root, kind, own, problems)
            root = _as_recipe(root, kind, problems)
            parsed = [each if each.path[0] == kind and kind not in own else _below(kind, each) for each in parsed]
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
    parsed = [_below(kind, each) for each in parse_changes(changes, problems)]
    root = apply_changes(root, parsed, problems)
    problems.raise_if_any()
    return build_recipe(root, here, problems, table)


def _check_no_data(path: Path, kind: str, table: Table) -> None:
    """Refuse the user's data where a file of options belongs, and say how options name it."""
    if not (path.is_dir() or (path.suffix in DATA and path.is_file())):
        return
    named = {"files": f"files: [{path}]", "sources": f"sources: [{{files: {path}}}]"}
    fields = table.find(kind).config.model_fields
    example = next((text for field, text in named.items() if field in fields), None)
    raise RecipeError(
        "this is data, and a recipe or a YAML file of options is wanted",
        place=str(path),
        fix=f"write a file with the stage's options{f', such as {example}' if example else ''}, then: ingot {kind} FILE.yaml",
    )


def _lacks_stages(root: Node, own: Container[str], table: Table) -> bool:
    """Whether a file is a recipe but for the line `stages:`: every key is a kind of stage, and none an option (`own`)."""
    keys = [key for key in root.entries if key not in ROOT_KEYS]
    return bool(keys) and all(key in table and key not in own for key in keys)


def _check_one_place(root: Node, kind: str, own: Container[str], problems: Problems) -> None:
    """Options below the stage's kind and others beside it: which of them are meant?"""
    if kind in root.entries and kind not in own:
        beside = [key for key in root.entries if key not in (*ROOT_KEYS, kind)]
        place = root.entries[beside[0]].place
        fix = f"put {', '.join(beside)} below `{kind}:`, or take that line away"
        problems.add(f"{beside[0]} stands beside `{kind}:`, which holds the options of the stage", place=place, fix=fix)
        problems.raise_if_any()


def _below(kind: str, change: Change) -> Change:
    """A change of a stage's options as that of a recipe with this stage."""
    return change if change.path in RECIPE_PARTS else Change((kind, *change.path), change.value)


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
