"""Matches an intervention to the baseline in parameters or training FLOPs, by adjusting an option that it did not change.

    what the intervention changed           what is adjusted
    attention, norms, positions, heads …    the width of the feed-forward (of one expert, where it is a mixture)
    tied or untied embeddings               the depth to the nearest layer, then the feed-forward for the rest
    the feed-forward itself, depth, multi-token prediction, batch, length         the number of steps (FLOPs only)

Parameters are all that training has (with multi-token modules), FLOPs those of the measured stage (model/count.py; an
optimizer's own work does not count). Both are straight lines in the adjusted width, so two counts give it; it is then rounded
to the largest power of two that misses by no more than NEAR. What misses by more than TOLERANCE is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from ingot.lab.variables import Variable
from ingot.planner.cost import Cost, stage_costs, stage_models
from ingot.recipe.recipe import Recipe
from ingot.recipe.stages import Table
from ingot.workspace.errors import RecipeError

if TYPE_CHECKING:
    from ingot.model.config import ModelConfig

By = Literal["parameters", "flops"]
How = Literal["feed_forward", "depth", "steps"]
NEAR, TOLERANCE = 0.002, 0.01
UNITS = (128, 64, 32, 16, 8, 4, 2, 1)
FARTHEST = 4.0  # a feed-forward that would have to be so many times wider or narrower is another experiment
OF_FEED_FORWARD = ("width", "expert", "experts", "active", "shared")
EVEN_LAYERS = re.compile(r"\s*(\w+)\s*\*\s*(\d+)\s*", re.ASCII)


@dataclass(frozen=True)
class Matched:
    """What was adjusted, and how far from the baseline the intervention is now."""

    by: By
    changes: tuple[str, ...]  # as `--set` takes them
    before: float  # the intervention's share of the baseline's amount, unadjusted
    after: float

    @property
    def text(self) -> str:
        """In words."""
        if not self.changes:
            return f"equal in {self.by}" if self.after == 1 else f"{self.after - 1:+.2%} {self.by} without adjusting"
        return f"{', '.join(self.changes)} ({self.before - 1:+.1%} {self.by} before, {self.after - 1:+.2%} after)"


@dataclass(frozen=True)
class Matcher:
    """Matches arms to one baseline. `load` makes a recipe of changes."""

    by: By
    baseline: Recipe
    stage: str  # that is measured
    load: Callable[[Sequence[str]], Recipe]
    table: Table

    def match(self, name: str, changes: Sequence[str], variables: Sequence[Variable], how: How | None) -> Matched:
        """What to add to an intervention's changes."""
        place = f"interventions.{name}"
        arm = self.load(changes)
        before = self._share(arm, place)
        if abs(before - 1) <= NEAR and how is None:
            return Matched(self.by, (), before, before)
        added: list[str] = []
        for each in self._plan(variables, how, place):
            added += each(self, self.load([*changes, *added]), place)
        after = self._share(self.load([*changes, *added]), place)
        if abs(after - 1) > TOLERANCE:
            problem = f"cannot be matched: {', '.join(added) or 'nothing to adjust'} still misses by {after - 1:+.1%} {self.by}"
            fix = "give another `adjust`, change the baseline's widths, or write `match: none`"
            raise RecipeError(problem, place=place, fix=fix)
        return Matched(self.by, tuple(added), before, after)

    def amount(self, recipe: Recipe) -> float | None:
        """Parameters or FLOPs of the measured stage; None where the recipe does not say."""
        cost = stage_costs(recipe, look=True, table=self.table).get(self.stage, Cost())
        return cost.parameters if self.by == "parameters" else cost.flops

    def _share(self, recipe: Recipe, place: str) -> float:
        base, own = self.amount(self.baseline), self.amount(recipe)
        if base is None or own is None:
            fix = "measure a pretrain stage, or write `match: none`"
            raise RecipeError(f"the {self.by} of {self.stage} are not known in advance", place=place, fix=fix)
        return own / base

    def _plan(
        self, variables: Sequence[Variable], how: How | None, place: str
    ) -> tuple[Callable[[Matcher, Recipe, str], list[str]], ...]:
        plans = {
            "feed_forward": (_feed_forward,),
            "depth": (_depth, _feed_forward),
            "steps": (_steps,),
        }
        taken = [variable for variable in variables if _is_taken(variable)]
        if how is None:
            tied = any(variable.path[-1:] == ("tied_embeddings",) for variable in variables)
            own = all(variable.path[:1] == ("model",) for variable in variables) and not taken
            how = "depth" if tied and own else "feed_forward" if own else "steps"
        if how == "steps" and self.by == "parameters":
            problem = f"{', '.join(variable.key for variable in variables)} changes the parameters by itself"
            fix = "write `match: flops`, or `match: none`; `adjust: feed_forward` where that is not what it changes"
            raise RecipeError(problem, place=place, fix=fix)
        clash = [variable.key for variable in variables if variable.path and _is_adjusted_by(how, variable.path)]
        if clash:
            problem = f"it changes {clash[0]}, which matching by {how} would change again"
            raise RecipeError(problem, place=place, fix="give another `adjust`, or write `match: none`")
        return plans[how]


def _is_taken(variable: Variable) -> bool:
    """Whether it is of the feed-forward's or the model's own size, so that widening the feed-forward would undo it."""
    path = variable.path
    of_part = "feed_forward" in path and path[-1] != "feed_forward"  # not a whole part of another kind
    return of_part or path[-1:] == ("layers",) or path[:2] == ("model", "multi_token") or path == ("model", "width")


def _is_adjusted_by(how: How, path: tuple[str, ...]) -> bool:
    if how == "steps":
        return path in (("steps",), ("tokens",))
    sizes = "feed_forward" in path[:-1] and path[-1] in OF_FEED_FORWARD
    return sizes or (how == "depth" and path[-1] == "layers")


def _feed_forward(matcher: Matcher, arm: Recipe, place: str) -> list[str]:
    """Scale the feed-forward of every block by one factor."""
    stage, model = _written_model(arm, matcher, place)
    widths = dict(_widths(model.model_dump()["blocks"]))
    if not widths:
        raise RecipeError("no block has a feed-forward to adjust", place=place, fix="write `match: none`")

    def changes(factor: float, unit: int) -> dict[tuple[str, ...], int]:
        return {path: max(1, round(width * factor / unit)) * unit for path, width in widths.items()}

    def written(new: Mapping[tuple[str, ...], int]) -> list[str]:
        return [
            f"{stage}.model.blocks.{'.'.join(path)}={width}" for path, width in new.items() if width != widths[path]
        ]

    def share(new: Mapping[tuple[str, ...], int]) -> float:
        own, base = matcher.amount(_with(arm, stage, model, new)), matcher.amount(matcher.baseline)
        assert own is not None and base is not None
        return own / base

    here, doubled = share(changes(1, 1)), share(changes(2, 1))
    factor = 1 + (1 - here) / (doubled - here)
    if not 1 / FARTHEST <= factor <= FARTHEST:
        problem = f"cannot be matched: the feed-forward would have to be {factor:.2g} times as wide"
        raise RecipeError(
            problem, place=place, fix="give another `adjust`, change the baseline's widths, or `match: none`"
        )
    tries = [changes(factor, unit) for unit in UNITS]
    near = next((new for new in tries if abs(share(new) - 1) <= NEAR), None)
    return written(near or min(tries, key=lambda new: abs(share(new) - 1)))


def _depth(matcher: Matcher, arm: Recipe, place: str) -> list[str]:
    """Add or remove layers, to the nearest."""
    stage, model = _written_model(arm, matcher, place)
    even = EVEN_LAYERS.fullmatch(model.layers)
    if even is None:
        problem = f"its layers are {model.layers!r}: which of them to add or remove is not clear"
        raise RecipeError(problem, place=place, fix="write `adjust: feed_forward`, or `match: none`")
    block, depth = even[1], int(even[2])

    def layers(count: int) -> str:
        return f"{stage}.model.layers={block}*{count}"

    def share(count: int) -> float:
        changed = model.model_copy(update={"layers": f"{block}*{count}"})
        own, base = (
            matcher.amount(_replaced(arm, stage, type(model).model_validate(changed.model_dump()))),
            matcher.amount(matcher.baseline),
        )
        assert own is not None and base is not None
        return own / base

    slope = share(depth + 1) - share(depth)
    nearest = max(1, round(depth + (1 - share(depth)) / slope))
    return [layers(nearest)] if nearest != depth else []


def _steps(matcher: Matcher, arm: Recipe, place: str) -> list[str]:
    """Train for more or fewer steps."""
    config: Any = arm.stage(matcher.stage).config
    before, own = matcher.amount(matcher.baseline), matcher.amount(arm)
    assert before is not None and own is not None
    steps = max(1, round(config.steps * before / own))
    name = arm.stage(matcher.stage).written_as or matcher.stage
    counted = [f"{name}.tokens=null"] if getattr(config, "tokens", None) is not None else []
    return [*counted, f"{name}.steps={steps}"] if steps != config.steps else []


def _written_model(recipe: Recipe, matcher: Matcher, place: str) -> tuple[str, ModelConfig]:
    """The stage of the recipe that spells the model out, and the model."""
    found = [stage for stage in recipe.stages if getattr(stage.config, "model", None) is not None]
    models = stage_models(recipe, look=True, table=matcher.table)
    if not found or models.get(found[0].name) is None:
        fix = "measure a recipe that trains from scratch, or write `match: none`"
        raise RecipeError("the recipe does not spell its model out: nothing to adjust", place=place, fix=fix)
    model: Any = found[0].config
    return found[0].written_as or found[0].name, model.model


def _widths(blocks: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], int]]:
    """Where the feed-forwards' widths stand: (block, feed_forward, width), or of one expert."""
    for name, block in blocks.items():
        part = block.get("feed_forward") or {}
        if isinstance(part.get("expert"), Mapping):
            yield (name, "feed_forward", "expert", "width"), part["expert"]["width"]
        elif isinstance(part.get("width"), int):
            yield (name, "feed_forward", "width"), part["width"]


def _with(recipe: Recipe, stage: str, model: ModelConfig, widths: Mapping[tuple[str, ...], int]) -> Recipe:
    """The recipe with other widths in its model."""
    plain = model.model_dump()
    for path, width in widths.items():
        part = plain["blocks"]
        for key in path[:-1]:
            part = part[key]
        part[path[-1]] = width
    return _replaced(recipe, stage, type(model).model_validate(plain))


def _replaced(recipe: Recipe, stage: str, model: ModelConfig) -> Recipe:
    stages = [
        replace(each, config=each.config.model_copy(update={"model": model})) if each.name == stage else each
        for each in recipe.stages
    ]
    return replace(recipe, stages=tuple(stages))
