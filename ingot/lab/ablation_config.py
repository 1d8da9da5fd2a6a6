"""The options of an ablation, and its file: a baseline recipe, interventions that each change one thing, and what is measured.

baseline: base.yaml                                    # beside this file
seeds: 3
measure: { stage: pretrain, metric: validation_bits_per_byte, lower_is_better: true }
interventions:
  qk_norm: { set: { pretrain.model.blocks.*.mixer.query_key_norm: head }, predicted: "+1 %" }
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from ingot.recipe.problems import Problems
from ingot.recipe.read import anchored
from ingot.recipe.tree import Node, parse_yaml
from ingot.recipe.validate import validate
from ingot.workspace.config import Config
from ingot.workspace.errors import RecipeError

BASELINE = "baseline"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}", re.ASCII)
Factor = Annotated[float, Field(gt=0)]
Seed = Annotated[int, Field(ge=0)]


class MeasureConfig(Config):
    """What runs are compared by."""

    stage: str = Field(description="the stage whose checkpoint, or whose own numbers, are compared")
    metric: str | tuple[str, ...] = Field(
        description="a metric of its evaluations or a number of its summary; several: all are tested"
    )
    lower_is_better: bool | None = Field(None, description="null: as the metric says")

    @property
    def metrics(self) -> tuple[str, ...]:
        """Their names."""
        return (self.metric,) if isinstance(self.metric, str) else self.metric


class PruneConfig(Config):
    """When a run is given up as hopeless. An intervention with such a run is not tested."""

    at: float = Field(0.5, gt=0, lt=1, description="from this share of the steps on")
    behind: float = Field(
        gt=0, description="worse than the baseline's same seed at the same step by more than this share"
    )


class InterventionConfig(Config):
    """One change of the baseline."""

    set: dict[str, Any] = Field(
        {},
        description="STAGE.KEY: value, as `--set`; `*` stands for every block; a part of another kind replaces the old one",
    )
    values: dict[str, tuple[Any, ...]] = Field(
        {}, description="instead of `set`: one option and its values in turn (a sweep); numbers get a fitted optimum"
    )
    predicted: str = Field("", description="what you expect and why; kept with its date, before the first result")
    confounded: bool = Field(False, description="it changes several variables at once, and the table says so")
    adjust: Literal["feed_forward", "depth", "steps"] | None = Field(
        None, description="what `match` changes to make up for it; null: by what the intervention changed"
    )

    @model_validator(mode="after")
    def _changes_something(self) -> Self:
        if bool(self.set) == bool(self.values):
            raise ValueError("an intervention has either `set` or `values`")
        if len(self.values) > 1:
            raise ValueError(f"values: one option has values, here {', '.join(self.values)}: make two interventions")
        if any(len(values) < 2 for values in self.values.values()):
            raise ValueError("values: give two values or more, or write `set`")
        return self


class AblationConfig(Config):
    """An ablation: a baseline, interventions, and how they are judged."""

    name: str | None = Field(None, description="names its folder; null: the file's name")
    baseline: str = Field(description="the recipe, relative to this file")
    kind: Literal["scratch", "annealing"] = Field(
        "scratch",
        description="annealing: the measured stage branches from a kept step of another (`from_step`); nothing before changes",
    )
    set: dict[str, Any] = Field({}, description="options of all runs, as `--set`")
    seeds: int | tuple[Seed, ...] = Field(3, description="how many, or which")
    measure: MeasureConfig = Field(description="what runs are compared by; the first metric gives the speed-up")
    match: Literal["none", "parameters", "flops"] = Field(
        "none", description="what is kept equal by adjusting another option; refused where that misses by more than 1 %"
    )
    level: float = Field(0.05, gt=0, lt=0.5, description="chance of any false alarm in the whole table (Holm)")
    worth: float = Field(
        0.0, ge=0, description="a gain below this share of the baseline's value is not worth having: rejected if shown"
    )
    curve: tuple[Factor, ...] | None = Field(
        None,
        description="further lengths of the baseline, in its steps, for the speed-up; null: 0.5 from scratch, else none",
    )
    prune: PruneConfig | None = Field(None, description="give up hopeless runs; null: never")
    interventions: dict[str, InterventionConfig] = Field(min_length=1, description="the changes, by name")

    @model_validator(mode="after")
    def _names_fit(self) -> Self:
        for name in self.interventions:
            if NAME.fullmatch(name) is None or name == BASELINE:
                raise ValueError(
                    f"interventions: {name!r} cannot be a name: it becomes a folder; use letters, digits, - and _"
                )
        if not self.all_seeds or len(set(self.all_seeds)) < len(self.all_seeds):
            raise ValueError("seeds: give a number of at least 1, or a list without repeats")
        if 1.0 in self.lengths or len(set(self.lengths)) < len(self.lengths):
            raise ValueError("curve: lengths other than 1, each once")
        return self

    @property
    def all_seeds(self) -> tuple[int, ...]:
        """Which seeds."""
        return tuple(range(1, self.seeds + 1)) if isinstance(self.seeds, int) else self.seeds

    @property
    def lengths(self) -> tuple[float, ...]:
        """The further lengths of the baseline."""
        if self.curve is not None:
            return self.curve
        return (0.5,) if self.kind == "scratch" else ()


def read_ablation(path: Path) -> AblationConfig:
    """The ablation in a file; an error lists everything that is wrong with it."""
    problems = Problems()
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(f"cannot be read: {error}", place=str(path), fix="give the file of an ablation") from error
    tree = parse_yaml(text, str(path), problems)
    problems.raise_if_any()
    if "stages" in tree.entries or "baseline" not in tree.entries:
        fix = "write `baseline: RECIPE` and `interventions:`; see docs/guides/ablation.md"
        raise RecipeError("this is not an ablation: it names no baseline", place=str(path), fix=fix)
    options = Node(
        {key: child if key == BASELINE else anchored(child, path.parent) for key, child in tree.entries.items()},
        tree.place,
    )
    found = validate(AblationConfig, options, "ablation", problems)
    problems.raise_if_any()
    assert isinstance(found, AblationConfig)
    return found
