"""An ablation as what will run: a baseline and its interventions, each with every seed, in one run folder of stages.

    RUNS/NAME/STAGE-HASH/…                              the stages of all runs; the same work has the same hash and is done once
    RUNS/NAME/ablations/ABLATION/RUN/run.json           a run folder of each run: `ingot report`, `chat` and `eval` take it
    RUNS/NAME/ablations/ABLATION/ablation.{html,json}   the notebook (report/ablation.py)

The seed of a run is that of the stages that train and that any intervention reaches: all arms have it in the same stages, so that
they are compared like with like; what comes before is the same work in all runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ingot.lab.ablation_config import BASELINE, AblationConfig, InterventionConfig, read_ablation
from ingot.lab.grid import FOREIGN, Axis, reached_stages, seeded_stages, short_names, written
from ingot.lab.matching import Matched, Matcher
from ingot.lab.target import Best, Target, find_target
from ingot.lab.variables import Variable, differences, expand
from ingot.recipe.load import load_recipe
from ingot.recipe.recipe import Recipe
from ingot.recipe.stages import STAGES, Table
from ingot.recipe.work import StageWork, list_work
from ingot.workspace.errors import RecipeError
from ingot.workspace.nearest import suggestion

ABLATIONS = "ablations"


@dataclass(frozen=True)
class Arm:
    """The baseline, or one intervention on it."""

    name: str
    changes: tuple[str, ...] = ()  # as `--set` takes them, with what matching adds
    variables: tuple[Variable, ...] = ()  # without what matching adds
    matched: Matched | None = None
    predicted: str = ""
    confounded: bool = False
    paired: bool = True  # whether a seed gives the same data in the same order as in the baseline
    sweep: str = ""  # the intervention with `values` that it is one value of
    length: float = 1.0  # of the baseline's, in steps
    value: Any = None  # of a sweep


@dataclass(frozen=True)
class LabRun:
    """One run: an arm with a seed."""

    arm: Arm
    seed: int
    recipe: Recipe
    changes: tuple[str, ...]  # that make the recipe from the baseline's file

    @property
    def name(self) -> str:
        """Names its folder."""
        return f"{self.arm.name},seed={self.seed}"


@dataclass(frozen=True)
class Ablation:
    """What an ablation will run, and how it is judged."""

    path: Path
    config: AblationConfig
    recipe: Recipe  # the baseline's, with its own seed
    common: tuple[str, ...]  # changes that all runs have
    targets: tuple[Target, ...]
    arms: tuple[Arm, ...]  # the baseline first
    lengths: tuple[Arm, ...]  # the baseline of other lengths
    runs: tuple[LabRun, ...]  # in the order in which they run: all arms with one seed before any with the next
    table: Table

    @property
    def name(self) -> str:
        """As its folder is called."""
        return self.config.name or self.path.stem

    @property
    def baseline_path(self) -> Path:
        """The file of the baseline."""
        return self.path.parent / self.config.baseline

    def folder(self, runs: Path) -> Path:
        """Where its results are."""
        return runs / self.recipe.name / ABLATIONS / self.name

    def needs(self, recipe: Recipe) -> frozenset[str]:
        """The stages that any of its metrics needs."""
        return frozenset().union(*(target.needs(recipe) for target in self.targets))

    def works(self, run: LabRun, runs: Path) -> list[StageWork]:
        """The stages that a run needs, with their status."""
        needed = self.needs(run.recipe)
        return [work for work in list_work(run.recipe, runs, self.table) if work.stage.name in needed]


def plan_ablation(path: Path, table: Table = STAGES) -> Ablation:
    """Load the recipe of every run; what is wrong with any of them is an error before anything runs."""
    config = read_ablation(path)
    base_path = path.parent / config.baseline
    first = load_recipe(base_path, (), table)
    common = expand(config.set, first)
    base = load_recipe(base_path, common, table)
    best: Best = (
        "auto" if config.measure.lower_is_better is None else "min" if config.measure.lower_is_better else "max"
    )
    texts = [f"{metric}@{config.measure.stage}" for metric in config.measure.metrics]
    targets = tuple(find_target(base, text, best, table) for text in texts)
    planner = _Planner(base_path, config, base, tuple(common), targets, table)
    arms = (Arm(BASELINE), *(arm for name, one in config.interventions.items() for arm in planner.arms(name, one)))
    lengths = tuple(planner.length(factor) for factor in config.lengths)
    seeded = planner.seeded(arms)
    runs = tuple(planner.run(arm, seed, seeded) for seed in config.all_seeds for arm in (*arms, *lengths))
    return Ablation(path, config, base, tuple(common), targets, arms, lengths, runs, table)


@dataclass(frozen=True)
class _Planner:
    """Makes arms and runs of one baseline."""

    path: Path
    config: AblationConfig
    base: Recipe
    common: tuple[str, ...]
    targets: tuple[Target, ...]
    table: Table

    def load(self, changes: Sequence[str]) -> Recipe:
        """The baseline with these changes."""
        return load_recipe(self.path, [*self.common, *changes], self.table)

    def arms(self, name: str, intervention: InterventionConfig) -> list[Arm]:
        """The arms of an intervention: one, or one for each value that is not the baseline's own."""
        if not intervention.values:
            return [self.arm(name, intervention, intervention.set)]
        [(key, values)] = intervention.values.items()
        short = short_names([key])[key]
        made = []
        for value in values:
            folder = f"{name}-{short}={FOREIGN.sub('_', written(value))}"
            try:
                made.append(replace(self.arm(folder, intervention, {key: value}), sweep=name, value=value))
            except _ChangesNothing:
                continue  # the baseline has this value: it is a point of the sweep already
        return made

    def arm(self, name: str, intervention: InterventionConfig, changed: dict[str, Any]) -> Arm:
        """An intervention, checked: one variable, which reaches what is measured; matched where that is asked for."""
        place = f"interventions.{name}"
        changes = expand(changed, self.base)
        try:
            recipe = self.load(changes)
        except RecipeError as error:
            raise RecipeError(str(error), place=place) from error
        variables = differences(self.base, recipe)
        if not variables:
            problem = (
                f"{', '.join(changed)} changes nothing: the baseline has this value, or it does not change a result"
            )
            raise _ChangesNothing(problem, place=place, fix="remove the intervention, or give another value")
        if len(variables) > 1 and not intervention.confounded:
            listed = ", ".join(variable.key for variable in variables)
            fix = "make an intervention of each, or declare it: confounded: true"
            raise RecipeError(f"it changes {len(variables)} variables: {listed}", place=place, fix=fix)
        self._check_reach(place, variables, recipe)
        matched = None
        if self.config.match != "none":
            matcher = Matcher(self.config.match, self.base, self.targets[0].stage, self.load, self.table)
            matched = matcher.match(name, changes, variables, intervention.adjust)
        elif intervention.adjust is not None:
            fix = "write `match: parameters` or `match: flops`, or leave it out"
            raise RecipeError("adjust: nothing is matched", place=place, fix=fix)
        whole = [*changes, *(matched.changes if matched else ())]
        final = differences(self.base, self.load(whole)) if matched and matched.changes else variables
        paired = all(variable.keeps_data for variable in final)
        return Arm(name, tuple(whole), variables, matched, intervention.predicted, len(variables) > 1, paired)

    def _check_reach(self, place: str, variables: Sequence[Variable], recipe: Recipe) -> None:
        """Every variable must change what is measured; an annealing's none of what it branches from."""
        for target in self.targets:
            if not set(reached_stages(recipe, _axes(variables))) & target.needs(recipe):
                fix = f"measure a later stage than {target.stage}, or change an earlier one"
                raise RecipeError(f"{variables[0].key} does not change {target.text}", place=place, fix=fix)
        if self.config.kind != "annealing":
            return
        stage = self.targets[0].stage
        if getattr(self.base.stage(stage).config, "from_step", None) is None:
            problem = f"{stage} does not branch from a kept step, so this is no annealing"
            fix = "give it from_step (and keep_optimizer: true), or write `kind: scratch`"
            raise RecipeError(problem, place="kind: annealing", fix=fix)
        source = self.base.stage(stage).needed_stages()
        early = [name for name in reached_stages(recipe, _axes(variables)) if name in source and name != stage]
        trunk = [name for name in early if "checkpoint" in self.table.find(recipe.stage(name).kind).makes]
        if trunk:
            problem = f"{variables[0].key} changes {trunk[0]}, from which all runs must branch"
            raise RecipeError(problem, place=place, fix=f"change options of {stage} alone, or write `kind: scratch`")

    def length(self, factor: float) -> Arm:
        """The baseline, trained for this many times its steps."""
        stage = self.targets[0].stage
        config: Any = self.base.stage(stage).config
        if not isinstance(getattr(config, "steps", None), int) or config.steps < 1:
            fix = "measure a stage with steps, or write `curve: []`"
            raise RecipeError(f"{stage} has no steps to multiply for the baseline's curve", place="curve", fix=fix)
        name = self.base.stage(stage).written_as or stage
        counted = [f"{name}.tokens=null"] if getattr(config, "tokens", None) is not None else []
        changes = (*counted, f"{name}.steps={max(1, round(config.steps * factor))}")
        return Arm(f"{BASELINE}-x{factor:g}", changes, length=factor)

    def seeded(self, arms: Sequence[Arm]) -> list[str]:
        """The stages that take a run's seed: the same in all arms."""
        variables = [variable for arm in arms for variable in arm.variables]
        needed = frozenset().union(*(target.needs(self.base) for target in self.targets))
        axes = [axis for axis in _axes(variables) if axis.stage in {s.written_as or s.name for s in self.base.stages}]
        return seeded_stages(self.base, axes, needed, self.table)

    def run(self, arm: Arm, seed: int, seeded: Sequence[str]) -> LabRun:
        """An arm with a seed."""
        recipe = self.load(arm.changes)
        there = {stage.name for stage in recipe.stages}
        missing = [name for name in seeded if name not in there]
        if missing:
            fix = f"keep it; known: {suggestion(missing[0], there, 'stages')}"
            raise RecipeError(f"it has no stage {missing[0]}", place=f"interventions.{arm.name}", fix=fix)
        changes = (*self.common, *arm.changes, *(f"{stage}.seed={seed}" for stage in seeded))
        return LabRun(arm, seed, load_recipe(self.path, changes, self.table), changes)


class _ChangesNothing(RecipeError):
    """An intervention that is the baseline."""


def _axes(variables: Sequence[Variable]) -> list[Axis]:
    return [Axis(variable.key, (variable.after,)) for variable in variables]
