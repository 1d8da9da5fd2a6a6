"""A sweep: one recipe with several values of its options, each combination an ordinary run.

    RUNS/NAME/STAGE-HASH/…                         the stages of all trials; the same work has the same hash and is done once
    RUNS/NAME/sweeps/SWEEP/TRIAL/run.json          a run folder of each trial: `ingot report`, `chat` and `eval` take it
    RUNS/NAME/sweeps/SWEEP/sweep.{html,csv,json}   the comparison (report/sweep.py)

Only stages that the metric needs are run. All trials are checked before the first one runs. A trial that fails does not stop the
others, unless it failed in a stage that all of them share. Called again, finished stages are reused and unfinished ones resumed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ingot.evals.scores.scores import Metric
from ingot.lab.grid import Axis, Trial, make_trials, reached_stages, seeded_stages
from ingot.lab.target import Best, Target, find_target, measure
from ingot.recipe.flow import ExpectedSpeed, RunResult, run_recipe
from ingot.recipe.load import load_recipe
from ingot.recipe.recipe import Recipe
from ingot.recipe.record import RUN_FILE
from ingot.recipe.stages import STAGES, Table
from ingot.recipe.work import StageWork, list_work
from ingot.train.config import TrainingConfig
from ingot.workspace.config import content_hash
from ingot.workspace.errors import IngotError, RecipeError, RunLocked
from ingot.workspace.files import read_json
from ingot.workspace.interrupt import StopSignal
from ingot.workspace.progress import Progress

SWEEPS = "sweeps"
SIZES = ("tokens", "conversations", "pairs", "documents")
"""Numbers of a summary that say how much data a stage saw."""


@dataclass(frozen=True)
class Outcome:
    """How a trial ended: `done` with its metric, `failed` with its error."""

    trial: Trial
    status: str
    folder: Path
    metric: Metric | None = None
    error: str | None = None
    seconds: float = 0.0  # of the stages that differ between trials
    sizes: tuple[tuple[str, float], ...] = ()
    curves: Path | None = None  # metrics.jsonl of the first stage that trains and differs


@dataclass(frozen=True)
class Sweep:
    """What a sweep will run: the recipe of every trial, and what they are compared by."""

    path: Path
    name: str
    axes: tuple[Axis, ...]
    fixed: tuple[str, ...]
    seeds: tuple[int, ...]
    target: Target
    reached: tuple[str, ...]
    trials: tuple[Trial, ...]
    recipes: tuple[Recipe, ...]

    def folder(self, runs: Path) -> Path:
        """Where its results are."""
        keys = "+".join(axis.key for axis in self.axes) or "seeds"
        other = f"-{content_hash(list(self.fixed), digits=6)}" if self.fixed else ""
        return runs / self.name / SWEEPS / f"{keys}{other}"

    def works(self, runs: Path, table: Table = STAGES) -> list[list[StageWork]]:
        """The stages that every trial needs, with their status."""
        return [
            [work for work in list_work(recipe, runs, table) if work.stage.name in self.target.needs(recipe)]
            for recipe in self.recipes
        ]


def plan_sweep(
    path: Path,
    axes: Sequence[Axis],
    metric: str,
    *,
    fixed: Sequence[str] = (),
    seeds: Sequence[int] = (),
    best: Best = "auto",
    table: Table = STAGES,
) -> Sweep:
    """Load the recipe of every trial; what is wrong with any of them is an error before anything runs."""
    trials = make_trials(axes, seeds)
    if len(trials) < 2:
        fix = "give an option several values, --set sft.optimizer.lr=1e-4,3e-4, or several --seeds"
        raise RecipeError("there is nothing to sweep", place=str(path), fix=fix)
    first = load_recipe(path, [*fixed, *trials[0].changes()], table)
    target = find_target(first, metric, best, table)
    needed = target.needs(first)
    reached = [name for name in reached_stages(first, axes) if name in needed]
    for axis in axes:
        if not set(reached_stages(first, [axis])) & needed:
            problem = f"{axis.key} does not change {target.text}: no stage that it needs builds on {axis.stage}"
            raise RecipeError(problem, place=f"--set {axis.key}", fix="measure a later stage: --metric METRIC@STAGE")
    seeded = seeded_stages(first, axes, needed, table) if seeds else []
    recipes = [
        load_recipe(path, [*fixed, *trial.changes(), *(f"{stage}.seed={trial.seed}" for stage in seeded)], table)
        for trial in trials
    ]
    return Sweep(
        path, first.name, tuple(axes), tuple(fixed), tuple(seeds), target, tuple(reached), tuple(trials), tuple(recipes)
    )


def run_sweep(
    sweep: Sweep,
    runs: Path,
    *,
    progress: Progress | None = None,
    stop: StopSignal | None = None,
    finish: Callable[[Path], Path] | None = None,
    expected: ExpectedSpeed | None = None,
    after: Callable[[Sequence[Outcome]], object] | None = None,
    table: Table = STAGES,
) -> list[Outcome]:
    """Run every trial. `finish` writes the report of a trial's folder; `after` is called with the outcomes so far."""
    progress = progress or Progress()
    outcomes: list[Outcome] = []
    for number, (trial, recipe) in enumerate(zip(sweep.trials, sweep.recipes, strict=True), start=1):
        folder = sweep.folder(runs) / trial.folder
        folder.mkdir(parents=True, exist_ok=True)
        progress.stage("sweep", number, len(sweep.trials))
        progress.say(f"trial {trial.folder}")
        try:
            result = run_recipe(
                recipe,
                runs,
                only=sweep.target.needs(recipe),
                progress=progress,
                stop=stop,
                finish=finish,
                table=table,
                expected=expected,
                record=folder,
            )
            outcomes.append(_finished(sweep, trial, recipe, result, folder))
        except (RunLocked, RecipeError):  # of the sweep, not of this trial
            raise
        except (IngotError, RuntimeError) as error:  # RuntimeError: what torch raises, also when memory is full
            if _failed_stage(folder) not in (None, *sweep.reached):
                raise
            outcomes.append(Outcome(trial, "failed", folder, error=f"{type(error).__name__}: {error}"))
            progress.say(f"failed: {trial.folder}: {error}")
        if after is not None:
            after(outcomes)
    return outcomes


def _finished(sweep: Sweep, trial: Trial, recipe: Recipe, result: RunResult, folder: Path) -> Outcome:
    stages = {stage.name: stage for stage in result.stages}
    own = [stages[name] for name in sweep.reached if name in stages]
    trained = [stage for stage in own if isinstance(recipe.stage(stage.name).config, TrainingConfig)]
    summary: dict[str, Any] = trained[0].summary if trained else {}
    return Outcome(
        trial,
        "done",
        folder,
        measure(sweep.target, result),
        seconds=sum(stage.seconds or 0.0 for stage in own),
        sizes=tuple((name, float(summary[name])) for name in SIZES if isinstance(summary.get(name), int | float)),
        curves=trained[0].folder / "metrics.jsonl" if trained else None,
    )


def _failed_stage(folder: Path) -> str | None:
    """The stage that failed in the run that this folder records."""
    if not (folder / RUN_FILE).exists():
        return None
    stages: list[dict[str, Any]] = read_json(folder / RUN_FILE)["stages"]
    return next((str(stage["name"]) for stage in stages if stage["status"] == "failed"), None)
