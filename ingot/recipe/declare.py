"""The stages as a recipe writes them: kinds, order, typed configs. graph.py resolves their inputs.

The order is that of the file; a base recipe's stages come before those that extend it. `before: STAGE` places a stage
elsewhere. `after: each` makes one stage for every earlier stage that makes a checkpoint, named NAME-STAGE and placed
directly after it; `after: a` and `after: [a, b]` do so for the named ones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ingot.recipe.problems import Problems
from ingot.recipe.stages import Table
from ingot.recipe.tree import Node
from ingot.recipe.validate import validate
from ingot.workspace.config import Config
from ingot.workspace.errors import RecipeError
from ingot.workspace.nearest import suggestion
from ingot.workspace.outside import without_paths
from ingot.workspace.stage import Stage

STAGE_KEYS = ("stage", "inputs", "before", "after", "seed")
"""Keys that the recipe reads in every stage; no config class has a field of these names (a test checks it)."""
STAGE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", re.ASCII)
MAXIMUM_SEED = 2**32 - 1  # what every random generator in use can take


@dataclass(frozen=True)
class Declared:
    """A stage as written. `config` is None if it had problems, which are reported already."""

    name: str
    written_as: str
    kind: Stage
    config: Config | None
    seed: int
    inputs: Node | None
    after: Node | None
    place: str


def read_seed(node: Node | None, what: str, default: int, problems: Problems) -> int:
    """A seed, checked."""
    if node is None:
        return default
    value = node.content
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAXIMUM_SEED:
        problems.add(f"{what}: expected a whole number from 0 to {MAXIMUM_SEED}, given {value!r:.60}", place=node.place)
        return default
    return value


def place_stages(stages: Mapping[str, Node], problems: Problems) -> dict[str, Node]:
    """The stages in running order: each one with a `before` moved there."""
    order = list(stages)
    for name, node in stages.items():
        before = node.entries.get("before")
        if before is None:
            continue
        others = [other for other in stages if other != name]
        if before.content not in others:
            fix = suggestion(str(before.content), others, "stages")
            problems.add(f"{name}.before: no other stage is named {before.content}", place=before.place, fix=fix)
            continue
        order.remove(name)
        order.insert(order.index(str(before.content)), name)
    return {name: stages[name] for name in order}


def declare(name: str, node: Node, recipe_seed: int, table: Table, problems: Problems) -> Declared | None:
    """One stage, checked by itself; None if its kind is unknown."""
    if not STAGE_NAME.fullmatch(name):
        problems.add(f"{name!r:.80} is not a valid stage name", place=node.place, fix="use letters, digits, - and _")
        return None
    if node.content is None:  # `curate:` with nothing after it: all defaults
        node = Node({}, node.place)
    if not isinstance(node.content, dict):
        fix = "is it an option of the stage above? then indent it as the others are"
        problems.add(f"{name}: expected the options of the stage (a mapping)", place=node.place, fix=fix)
        return None
    entries = node.content
    written = entries.get("stage")
    try:
        kind = table.find(name if written is None else str(written.content))
    except RecipeError as error:
        fix = error.fix or ""
        if written is None:
            fix += f"{'' if fix.endswith('?') else '.'} A stage with a name of its own says its kind: `stage: KIND`"
        place = node.place if written is None else written.place
        problems.add(f"{name}: {error.problem}", place=place, fix=fix)
        return None
    options = Node({key: child for key, child in entries.items() if key not in STAGE_KEYS}, node.place)
    return Declared(
        name=name,
        written_as=name,
        kind=kind,
        config=validate(kind.config, options, name, problems, also=STAGE_KEYS),
        seed=read_seed(entries.get("seed"), f"{name}.seed", recipe_seed, problems),
        inputs=entries.get("inputs"),
        after=entries.get("after"),
        place=node.place,
    )


def expand(declared: list[Declared], problems: Problems) -> list[Declared]:
    """The stages with every `after` expanded."""
    result = [stage for stage in declared if stage.after is None]
    earlier: list[str] = []
    for stage in declared:
        if stage.after is None:
            earlier += [stage.name] if "checkpoint" in stage.kind.makes else []
            continue
        for target in _targets(stage, stage.after, earlier, problems):
            name = f"{stage.name}-{target}"
            if any(other.name == name for other in declared):
                problems.add(f"{stage.name}.after makes a stage {name}, which exists already", place=stage.after.place)
                continue
            single = replace(stage, name=name, after=None, inputs=_with_checkpoint(stage, target))
            position = next(number for number, other in enumerate(result) if other.name == target) + 1
            while position < len(result) and result[position].written_as != result[position].name:
                position += 1  # behind what another `after` put there
            result.insert(position, single)
    return result


def _targets(stage: Declared, after: Node, earlier: list[str], problems: Problems) -> list[str]:
    """The names of the stages that `after` means."""
    if "checkpoint" not in stage.kind.needs or "checkpoint" in stage.kind.makes:
        problems.add(
            f"{stage.name}.after: a {without_paths(stage.kind.kind)} stage does not look at checkpoints",
            place=after.place,
        )
        return []
    if after.content == "each":
        if not earlier:
            problems.add(f"{stage.name}.after: no earlier stage makes a checkpoint", place=after.place)
        return earlier
    named = [after] if isinstance(after.content, str) else after.content
    if not isinstance(named, list) or not named:
        fix = "write `after: each`, or a stage, or a list of stages"
        problems.add(f"{stage.name}.after: expected 'each' or stages", place=after.place, fix=fix)
        return []
    for item in named:
        if item.content not in earlier:
            fix = suggestion(str(item.content), earlier, "earlier stages that do")
            problem = f"{stage.name}.after: no earlier stage {item.content} makes a checkpoint"
            problems.add(problem, place=item.place, fix=fix)
    wanted = [item.content for item in named]
    return [name for name in earlier if name in wanted]


def _with_checkpoint(stage: Declared, target: str) -> Node:
    place = stage.after.place if stage.after is not None else stage.place
    written = stage.inputs.entries if stage.inputs is not None else {}
    return Node({**written, "checkpoint": Node(target, place)}, place)
