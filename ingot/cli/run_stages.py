"""Runs stages for a command: with progress, signals, several processes, and what is printed at the end."""

from __future__ import annotations

import signal
from collections.abc import Collection
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ingot.cli.problem import explain_full, is_full, show_problem
from ingot.cli.show import command_line, print_json, result_as_json, show_result, show_results
from ingot.workspace.errors import CheckFailed, IngotError, Interrupted

if TYPE_CHECKING:
    from ingot.recipe.recipe import Recipe
    from ingot.train.parallel.world import World
    from ingot.workspace.interrupt import StopSignal


def run_stages(
    recipe: Recipe,
    runs: Path,
    *,
    as_json: bool,
    report: bool,
    only: Collection[str] | None = None,
    from_stage: str | None = None,
    to_stage: str | None = None,
    dry_run: bool = False,
) -> None:
    """Run stages with live progress; print where the results are and what to do next, or what the kind says of its results."""
    from ingot.cli.stop import note_signals, resume_command
    from ingot.planner.expected import expected_speed
    from ingot.recipe.flow import run_recipe
    from ingot.train.parallel.launch import in_world
    from ingot.workspace.interrupt import StopSignal
    from ingot.workspace.progress import Progress, make_progress

    stop, received = StopSignal(), list[int]()
    try:
        with ExitStack() as inside:
            inside.enter_context(note_signals(stop, received))
            world = inside.enter_context(_join_world(stop)) if in_world() else None
            if world is not None and not world.leads:
                _follow(recipe, runs, world, stop)
                return
            progress = inside.enter_context(Progress() if as_json or dry_run else make_progress())
            result = run_recipe(
                recipe,
                runs,
                from_stage=from_stage,
                to_stage=to_stage,
                only=only,
                dry_run=dry_run,
                progress=progress,
                stop=stop,
                finish=_build_report if report else None,
                world=world,
                expected=expected_speed,
            )
    except Interrupted as error:
        typer.echo(f"{error}\nto resume: {resume_command()}", err=True)
        raise typer.Exit(0 if received[-1:] == [signal.SIGTERM] else 130) from None
    except KeyboardInterrupt:
        typer.echo(f"stopped at once; to resume from the last checkpoint: {resume_command()}", err=True)
        raise typer.Exit(130) from None
    except CheckFailed as error:
        show_problem(error)
        typer.echo(f"to look at the run so far: {command_line('ingot', 'report', runs / recipe.name)}", err=True)
        raise typer.Exit(2) from None
    except OSError as error:
        if not is_full(error):
            raise
        fix = (
            "free some space, or let training stages keep fewer checkpoints; the same command resumes from the last one"
        )
        raise explain_full(error, runs / recipe.name, fix) from error
    if as_json:
        print_json(result_as_json(result))
    elif dry_run:
        show_result(result, to_run=_asked_for(recipe, only, from_stage, to_stage))
    elif report or not show_results(result, only):
        show_result(result, suggestions=recipe.next if report else ())


def _asked_for(
    recipe: Recipe, only: Collection[str] | None, from_stage: str | None, to_stage: str | None
) -> Collection[str]:
    """The stages that these options select; all without options."""
    first = 0 if from_stage is None else recipe.index(from_stage)
    last = len(recipe.stages) - 1 if to_stage is None else recipe.index(to_stage, last=True)
    return {stage.name for stage in recipe.stages[first : last + 1] if only is None or stage.name in only}


def _join_world(stop: StopSignal) -> AbstractContextManager[World]:
    from ingot.train.parallel.world import join_world  # which imports torch: only where there are several processes

    return join_world(stop)


def _follow(recipe: Recipe, runs: Path, world: World, stop: StopSignal) -> None:
    """What every rank but the main one does. An error that all ranks have is printed by the main rank alone."""
    from ingot.recipe.flow import follow_recipe

    try:
        follow_recipe(recipe, runs, world, stop)
    except IngotError:
        if world.leader_ends():
            raise typer.Exit(2) from None
        raise


def _build_report(folder: Path) -> Path:
    from ingot.report.build import build

    return build(folder, None)
