"""Runs a recipe: skips finished stages, resumes unfinished ones, repeats exactly what changed.

A stage's folder is named by a hash of all that its result depends on (graph.py): a finished folder of that name is reused. A
stage that was stopped or killed is called again in the same folder and resumes from its last checkpoint. Folders of other
hashes are never touched.

Invariant: at any moment, also after `kill -9`, a folder with a valid DONE is complete; at most the work since a stage's
last checkpoint is lost.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ingot.recipe.folders import Done, discard, input_paths, sweep, write_done, write_stage_recipe
from ingot.recipe.graph import input_hashes
from ingot.recipe.recipe import Recipe
from ingot.recipe.record import RunningRecord, StageResult, headline, make_results
from ingot.recipe.stages import STAGES, Table
from ingot.recipe.work import StageWork, list_work
from ingot.train.config import TrainingConfig
from ingot.workspace.errors import ArtifactError, CheckFailed, Interrupted, RecipeError
from ingot.workspace.files import folder_bytes
from ingot.workspace.interrupt import StopSignal, stop_on_signals
from ingot.workspace.lock import lock_folder
from ingot.workspace.progress import Progress, format_seconds
from ingot.workspace.stage import WARNING, StageFolder

if TYPE_CHECKING:
    from ingot.train.parallel.world import World

SAVED = ("steps/step-*[0-9]", "answers/*.jsonl", "reference/*.jsonl")
"""What a training stage resumes from: checkpoints (train/saving/steps.py), and what `prefer` has sampled (post/resumable.py)."""


@dataclass(frozen=True)
class RunResult:
    """What a run consisted of, and where it is."""

    name: str
    folder: Path
    stages: tuple[StageResult, ...]
    report: Path | None = None

    @property
    def checkpoint(self) -> Path | None:
        """The folder of the last finished stage that made a checkpoint: what `ingot.load` and `ingot chat` take."""
        finished = [stage.folder for stage in self.stages if stage.status in ("done", "reused")]
        made = [folder for folder in finished if (folder / "checkpoint").exists()]
        return made[-1] if made else None

    def unused(self) -> list[Path]:
        """Stage folders in the run folder that belong to other versions of the recipe."""
        used = {stage.folder.name for stage in self.stages}
        return sorted(file.parent for file in self.folder.glob("*-*/recipe.yaml") if file.parent.name not in used)


ExpectedSpeed = Callable[[Recipe, str, int], float | None]  # tokens per second of a stage on so many processes


def run_recipe(
    recipe: Recipe,
    runs: Path = Path("runs"),
    *,
    from_stage: str | None = None,
    to_stage: str | None = None,
    only: Collection[str] | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
    stop: StopSignal | None = None,
    finish: Callable[[Path], Path] | None = None,
    table: Table = STAGES,
    world: World | None = None,
    expected: ExpectedSpeed | None = None,
    record: Path | None = None,
    held: bool = False,
) -> RunResult:
    """Run the stages of `recipe` that are not finished below `runs`.

    `from_stage` redoes that stage and all that follow; earlier ones must be finished. `to_stage` is the last to run.
    `only` runs just the stages of these names. `finish` is called with the run folder at the end, returns the report.
    `expected` (planner/expected.py) estimates the speed that a training stage should reach here; the stage says it at its start.
    Without a `stop`, Ctrl-C and SIGTERM stop at the next step; a caller that gives one handles the signals itself.
    In a `world` of several processes the first calls this, the others `follow_recipe`.
    `record` is the folder of run.json and the report, if not that of the run: a sweep's runs share one folder of stages.
    `held`: the caller holds the lock of the run folder, and no other process works on the same stages (lab/processes.py).
    """
    first = 0 if from_stage is None else recipe.index(from_stage, place=f"--from {from_stage}")
    last = len(recipe.stages) - 1 if to_stage is None else recipe.index(to_stage, last=True, place=f"--to {to_stage}")
    if first > last:
        raise RecipeError(f"--to {to_stage} comes before --from {from_stage}", place=str(recipe.path))
    chosen = {stage.name for stage in recipe.stages[first : last + 1] if only is None or stage.name in only}
    run_folder = runs / recipe.name
    if dry_run:
        works = list_work(recipe, runs, table)
        redo = _redone(works, first, from_stage)
        check_inputs(works, chosen, redo, recipe)
        results = make_results([_as_undone(work) if work.stage.name in redo else work for work in works])
        return RunResult(recipe.name, run_folder, tuple(results))
    with nullcontext() if held else lock_folder(run_folder):
        if not held:
            sweep(run_folder)
        works = list_work(recipe, runs, table)
        redo = _redone(works, first, from_stage)
        check_inputs(works, chosen, redo, recipe)
        for work in reversed(works):  # the last first: a kill in between leaves no result of a discarded input
            if work.stage.name in redo:
                discard(work.folder)
        works = [_as_undone(work) if work.stage.name in redo else work for work in works]
        recorded = record or run_folder
        results = _Run(recipe, works, chosen, recorded, progress or Progress(), table, world, expected).run(stop)
        report = finish(recorded) if finish is not None else None
    return RunResult(recipe.name, run_folder, tuple(results), report)


def _redone(works: Sequence[StageWork], first: int, from_stage: str | None) -> set[str]:
    return set() if from_stage is None else {work.stage.name for work in works[first:]}


def _as_undone(work: StageWork) -> StageWork:
    return StageWork(work.stage, work.kind, work.hash, work.folder, done=None)


def check_inputs(works: Sequence[StageWork], chosen: set[str], redo: set[str], recipe: Recipe) -> None:
    """Every input of a stage that will run must be finished, or be made by a stage that will run."""
    finished = {work.stage.name for work in works if work.done is not None} - redo
    for work in works:
        if work.stage.name not in chosen or work.stage.name in finished:
            continue
        for needed in work.stage.needed_stages():
            if needed not in finished and needed not in chosen:
                raise ArtifactError(
                    f"stage {work.stage.name} needs the result of {needed}, which is not finished",
                    place=str(recipe.path),
                    fix=f"run it first: ingot run {recipe.path} --to {needed}",
                )


def follow_recipe(recipe: Recipe, runs: Path, world: World, stop: StopSignal, table: Table = STAGES) -> None:
    """What every rank but the main one does: take part in the stages that the main rank calls."""
    for name in world.orders():
        works = list_work(recipe, runs, table)
        work = next(each for each in works if each.stage.name == name)
        folder = StageFolder(work.folder, work.stage.seed, Progress(), stop)
        with _joined(work, world), suppress(Interrupted):
            _call(work, {each.stage.name: each.folder for each in works}, folder)


def _call(work: StageWork, folders: Mapping[str, Path], folder: StageFolder) -> dict[str, Any]:
    return work.kind.run(work.stage.config, input_paths(work.stage.inputs, folders), folder)


def _is_divided(work: StageWork) -> bool:
    """Whether all processes work on a stage: one that can be divided, over a mesh of more than one (0: of all) processes."""
    config = work.stage.config
    if not work.kind.divides or not isinstance(config, TrainingConfig):
        return False
    mesh = config.mesh
    return mesh.replicate * mesh.shard * mesh.tensor * mesh.context * mesh.pipeline != 1


def _joined(work: StageWork, world: World) -> AbstractContextManager[None]:
    """Inside, all processes work on the stage together."""
    config = work.stage.config
    assert isinstance(config, TrainingConfig)
    return world.stage(work.stage.name, config.device)


class _Run:
    """One pass over the stages, with the lock held."""

    def __init__(
        self,
        recipe: Recipe,
        works: Sequence[StageWork],
        chosen: set[str],
        folder: Path,
        progress: Progress,
        table: Table,
        world: World | None = None,
        expected: ExpectedSpeed | None = None,
    ) -> None:
        self.recipe, self.works, self.chosen, self.progress, self.table = recipe, works, chosen, progress, table
        self.world, self.expected = world, expected
        self.folders = {work.stage.name: work.folder for work in works}
        self.hashes = {work.stage.name: work.hash for work in works}
        self.results = make_results(works)
        self.record = RunningRecord(folder, recipe, self.results)

    def run(self, stop: StopSignal | None) -> list[StageResult]:
        own = StopSignal() if stop is None else stop
        self.record.write()
        with stop_on_signals(own) if stop is None else nullcontext():
            for number, (work, result) in enumerate(zip(self.works, self.results, strict=True), start=1):
                if work.stage.name not in self.chosen:
                    continue
                if own.requested:
                    raise Interrupted(f"stopped before stage {work.stage.name}")
                self.progress.stage(work.stage.name, number, len(self.works))
                if work.done is not None:
                    self.progress.say("finished earlier, reused")
                else:
                    self._run_stage(work, result, own)
        return self.results

    def _run_stage(self, work: StageWork, result: StageResult, stop: StopSignal) -> None:
        work.folder.mkdir(parents=True, exist_ok=True)
        write_stage_recipe(work.folder, self.recipe, work.stage, self.folders)
        earlier = result.seconds or 0.0
        result.status = "running"
        self.record.write()
        began = time.monotonic()
        try:
            folder = StageFolder(work.folder, work.stage.seed, self.progress, stop, self._expected(work))
            done = self._work(work, folder, began - earlier)
        except (Interrupted, KeyboardInterrupt) as error:
            result.status, result.seconds = "pending", earlier + time.monotonic() - began
            self.record.write()
            if isinstance(error, KeyboardInterrupt):
                raise
            raise Interrupted(f"stopped in stage {work.stage.name}; {_what_is_saved(work)}") from error
        except Exception as error:
            result.status, result.seconds = "failed", earlier + time.monotonic() - began
            result.error = f"{type(error).__name__}: {error}"
            self.record.write()
            raise
        result.finish(done, "done")
        self.record.write()
        shown = [f"done in {format_seconds(done.seconds)}", headline(done.summary)]
        self.progress.say(" · ".join(part for part in shown if part))
        if WARNING in done.summary:
            self.progress.say(f"warning: {done.summary[WARNING]}")

    def _expected(self, work: StageWork) -> float | None:
        """Tokens per second that a training stage should reach here, as far as that is known."""
        if self.expected is None or not isinstance(work.stage.config, TrainingConfig):
            return None
        divided = self.world is not None and _is_divided(work)
        return self.expected(self.recipe, work.stage.name, self.world.size if divided and self.world else 1)

    def _work(self, work: StageWork, folder: StageFolder, began: float) -> Done:
        """Call the stage and declare its folder finished."""
        with nullcontext() if self.world is None or not _is_divided(work) else _joined(work, self.world):
            summary = _call(work, self.folders, folder)
        done = Done(
            name=work.stage.name,
            kind=work.stage.kind,
            hash=work.hash,
            seconds=round(time.monotonic() - began, 3),
            summary=_checked_summary(work, summary),
            inputs=input_hashes(work.stage.inputs, self.hashes),
        )
        write_done(work.folder, work.stage, done, work.kind.makes)
        return done


def _what_is_saved(work: StageWork) -> str:
    """What a stopped stage resumes from. Some training stages sample for a long time before they save anything."""
    saved = work.kind.resumes
    if isinstance(work.stage.config, TrainingConfig):
        saved = any(path for pattern in SAVED for path in work.folder.glob(pattern))
    return f"its work is saved in {work.folder}" if saved else "none of its work is saved yet; it will start again"


def _checked_summary(work: StageWork, summary: Any) -> dict[str, Any]:
    """A summary goes into DONE, run.json and the report: it must be plain JSON."""
    try:
        json.dumps(summary, allow_nan=False)
    except (TypeError, ValueError) as error:
        problem = f"the {work.stage.kind} stage returned a summary that is not plain JSON: {error}"
        raise CheckFailed(problem, place=str(work.folder)) from error
    if not isinstance(summary, dict):
        problem = f"the {work.stage.kind} stage returned a {type(summary).__name__}, not a summary"
        raise CheckFailed(problem, place=str(work.folder))
    return summary


def result_bytes(result: RunResult) -> dict[str, int]:
    """The size of every stage's folder that exists, by stage."""
    return {stage.name: folder_bytes(stage.folder) for stage in result.stages if stage.folder.exists()}
