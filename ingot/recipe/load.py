"""A YAML file to a checked `Recipe`, or an error that lists everything that is wrong with it.

A recipe is checked before anything runs; torch is imported only if a stage has a model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ingot.recipe.check import check_stages
from ingot.recipe.declare import Declared, declare, expand, place_stages, read_seed
from ingot.recipe.graph import resolve_inputs
from ingot.recipe.problems import Problems
from ingot.recipe.read import ROOT_KEYS, Changes, anchored, apply_changes, parse_changes, read_file
from ingot.recipe.recipe import Recipe, RecipeStage
from ingot.recipe.stages import STAGES, Table
from ingot.recipe.tree import Node, from_python
from ingot.workspace.nearest import suggestion

DEFAULT_SEED = 1
RECIPE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)


def load_recipe(path: Path | str, changes: Changes = (), table: Table = STAGES, *, absent: bool = False) -> Recipe:
    """The recipe at `path` with `changes` made to it; raises `RecipeError`. With `absent` input paths need not exist (plans)."""
    path = Path(path)
    problems = Problems()
    root = read_file(path, problems)
    parsed = parse_changes(changes, problems)
    problems.raise_if_any()  # of what could not be read, nothing more can be said
    return build_recipe(apply_changes(root, parsed, problems), path, problems, table, absent=absent)


def make_recipe(content: Mapping[str, Any], place: str, table: Table = STAGES) -> Recipe:
    """The recipe that a program holds in its hands: what a file of this content would say. `place` is for errors."""
    problems = Problems()
    root = anchored(from_python(content, place, problems), Path())
    problems.raise_if_any()
    return build_recipe(root, Path(place), problems, table)


def build_recipe(root: Node, path: Path, problems: Problems, table: Table, *, absent: bool = False) -> Recipe:
    """The recipe of a tree; raises what `problems` holds and what is found in addition."""
    entries = root.entries
    for key, node in entries.items():
        if key not in ROOT_KEYS:
            problems.add(f"unknown key {key}", place=node.place, fix=_suggest_root_key(key, table))
    name = _read_name(entries.get("name", Node(path.stem, str(path))), problems)
    seed = read_seed(entries.get("seed"), "seed", DEFAULT_SEED, problems)
    following = _read_next(entries.get("next"), problems)
    presets = _read_presets(entries.get("presets"), problems)
    declared = _read_stages(entries.get("stages"), root.place, seed, table, problems)
    inputs = resolve_inputs(declared, problems, entries.get("inputs"), absent=absent)
    check_stages(declared, inputs, problems)
    problems.raise_if_any()
    stages = [
        RecipeStage(stage.name, stage.kind.kind, stage.config, stage.seed, inputs[stage.name], stage.written_as)
        for stage in declared
        if stage.config is not None
    ]
    return Recipe(name, seed, tuple(stages), path, following, presets)


def _suggest_root_key(key: str, table: Table) -> str:
    if key in table:
        return f"stages stand below `stages:`; write stages: {{{key}: …}}"
    return suggestion(key, ROOT_KEYS, "known keys")


def _read_name(node: Node, problems: Problems) -> str:
    if isinstance(node.content, str) and RECIPE_NAME.fullmatch(node.content):
        return node.content
    fix = "the name becomes a folder: use letters, digits, dots, - and _"
    problems.add(f"name: {node.plain()!r:.80} is not a valid recipe name", place=node.place, fix=fix)
    return ""


def _read_next(node: Node | None, problems: Problems) -> tuple[str, ...]:
    """The commands to suggest at the end of a run."""
    lines = [] if node is None or node.content is None else node.plain()
    if isinstance(lines, list) and all(isinstance(line, str) for line in lines):
        return tuple(lines)
    problems.add("next: expected a list of commands", place=node.place if node else "", fix="write next: [COMMAND, …]")
    return ()


def _read_presets(node: Node | None, problems: Problems) -> dict[str, str]:
    """The presets that stand for checkpoints, by path: what `ingot plan` reckons with before they are there."""
    found = {} if node is None or node.content is None else node.plain()
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found.values()):
        fix = "write presets: {checkpoints/base: olmo3-7b}"
        problems.add("presets: expected a mapping of paths to presets", place=node.place if node else "", fix=fix)
        return {}
    if found:
        from ingot.model.presets.data import entries  # here: a recipe without presets reads none

        for path, name in found.items():
            if name not in entries():
                fix = suggestion(name, entries(), "presets")
                problems.add(f"presets.{path}: there is no preset {name}", place=node.place if node else "", fix=fix)
    return {str(path): name for path, name in found.items()}


def _read_stages(node: Node | None, place: str, seed: int, table: Table, problems: Problems) -> list[Declared]:
    if node is None or node.content is None or node.content == {}:
        problems.add("the recipe has no stages", place=node.place if node else place, fix="write stages: {pretrain: …}")
        return []
    if not isinstance(node.content, dict):
        fix = "write each stage as `name: {options}`"
        problems.add("stages: expected a mapping of stage names to their options", place=node.place, fix=fix)
        return []
    placed = place_stages(node.content, problems)
    declared = [declare(name, child, seed, table, problems) for name, child in placed.items()]
    complete = None not in declared
    known = expand([stage for stage in declared if stage is not None], problems)
    return known if complete else []  # of an unknown kind nothing can be said about what it makes
