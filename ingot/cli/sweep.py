"""`ingot sweep`: a recipe with several values of its options, compared in a table and on a page."""

from __future__ import annotations

import math
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from ingot.cli.show import command_line, console, print_json
from ingot.workspace.errors import Interrupted, RecipeError

if TYPE_CHECKING:
    from ingot.lab.compare import Comparison, Setting
    from ingot.lab.sweep import Outcome, Sweep
    from ingot.lab.target import Best

BEST = ("auto", "max", "min")


def sweep_command(
    recipe: Annotated[Path, typer.Argument(metavar="RECIPE", help="The recipe, a YAML file.", show_default=False)],
    metric: Annotated[
        str,
        typer.Option(
            "--metric", metavar="METRIC@STAGE", help="What runs are compared by: accuracy/all@sft.", show_default=False
        ),
    ],
    set: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="STAGE.KEY=A,B,C", help="Values of an option; may be repeated: a grid."),
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option("--seeds", metavar="1,2,3", help="Seeds of the stages that train from the swept one on."),
    ] = None,
    best: Annotated[
        str, typer.Option("--best", metavar="auto|max|min", help="Which side is better; auto: as the metric says.")
    ] = "auto",
    runs: Annotated[Path, typer.Option("--runs", metavar="DIR", help="Folder that holds the run folders.")] = Path(
        "runs"
    ),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the runs; write nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Run a recipe with several values of its options; a table with standard errors and a page with the plot."""
    from ingot.lab.grid import read_axes, read_seeds
    from ingot.lab.sweep import plan_sweep

    if best not in BEST:
        raise RecipeError(f"there is no {best}", place=f"--best {best}", fix=f"write one of {', '.join(BEST)}")
    axes, fixed = read_axes(set or ())
    sweep = plan_sweep(recipe, axes, metric, fixed=fixed, seeds=read_seeds(seeds), best=cast("Best", best))
    show_plan(sweep, runs, as_json=as_json) if dry_run else run_trials(sweep, runs, as_json=as_json)


def show_plan(sweep: Sweep, runs: Path, *, as_json: bool) -> None:
    """The trials, and how much of their work is left."""
    works = sweep.works(runs)
    folders = {work.folder for trial in works for work in trial}
    left = {work.folder for trial in works for work in trial if work.done is None}
    rows = [
        {
            "trial": trial.folder,
            "set": trial.changes(),
            "to_do": [work.stage.name for work in stages if work.done is None],
        }
        for trial, stages in zip(sweep.trials, works, strict=True)
    ]
    if as_json:
        print_json({"folder": str(sweep.folder(runs)), "trials": rows, "stages": len(folders), "to_do": len(left)})
        return
    for number, row in enumerate(rows, start=1):
        typer.echo(
            f"{number:>3}  {row['trial']}  {'to do: ' + ', '.join(row['to_do']) if row['to_do'] else 'finished'}"
        )
    typer.echo(f"{len(rows)} trials, {len(folders)} different stages, {len(left)} to do; the others are finished")
    typer.echo(f"compared by {sweep.target.text}; results: {sweep.folder(runs)}")


def run_trials(sweep: Sweep, runs: Path, *, as_json: bool) -> None:
    """Run, write the page after every trial, and print the table."""
    from ingot.cli.stop import note_signals, resume_command
    from ingot.lab.compare import compare
    from ingot.lab.sweep import run_sweep
    from ingot.planner.expected import expected_speed
    from ingot.report.build import build
    from ingot.report.sweep import contents, write_sweep
    from ingot.workspace.interrupt import StopSignal
    from ingot.workspace.progress import Progress, make_progress

    folder = sweep.folder(runs)

    def write(outcomes: Sequence[Outcome]) -> None:
        write_sweep(sweep, outcomes, folder)

    stop, received = StopSignal(), list[int]()
    try:
        with note_signals(stop, received), Progress() if as_json else make_progress() as progress:
            outcomes = run_sweep(
                sweep, runs, progress=progress, stop=stop, finish=build, expected=expected_speed, after=write
            )
    except Interrupted as error:
        typer.echo(f"{error}\nto resume: {resume_command()}", err=True)
        raise typer.Exit(0 if received[-1:] == [signal.SIGTERM] else 130) from None
    except KeyboardInterrupt:
        typer.echo(f"stopped at once; to resume from the last checkpoint: {resume_command()}", err=True)
        raise typer.Exit(130) from None
    comparison = compare(sweep, outcomes)
    if as_json:
        print_json(contents(sweep, outcomes) | {"page": str(folder / "sweep.html")})
    else:
        show_sweep(sweep, comparison, folder)
    if comparison.failed:
        raise typer.Exit(1)


def show_sweep(sweep: Sweep, comparison: Comparison, folder: Path) -> None:
    """The table from the best to the worst, what may be said of it, and what to do next."""
    from rich.table import Table
    from rich.text import Text

    from ingot.lab.compare import notes
    from ingot.lab.grid import short_names, written
    from ingot.workspace.progress import format_seconds

    names = short_names([axis.key for axis in sweep.axes])
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in (*names.values(), sweep.target.text, "difference", "trials", "time"):
        table.add_column(name, justify="right")
    for setting in comparison.settings:
        values = dict(setting.trial.values)
        count = f"{len(setting.metrics)} of {len(setting.outcomes)}"
        seconds = format_seconds(math.fsum(outcome.seconds for outcome in setting.outcomes))
        style = "green" if setting is comparison.best else "red" if not setting.metrics else ""
        cells = [*(written(values[key]) for key in names), *_numbers(setting, comparison), count, seconds]
        table.add_row(*(Text(cell, style) for cell in cells))
    console().print(table)
    for line in notes(comparison):
        typer.echo(line)
    for outcome in comparison.failed:
        typer.echo(f"failed: {outcome.trial.folder}: {(outcome.error or '').splitlines()[0]}", err=True)
    typer.echo(f"page: {folder / 'sweep.html'}\ntables: {folder / 'sweep.csv'}, {folder / 'sweep.json'}")
    if comparison.best is not None:
        changes = [*sweep.fixed, *comparison.best.trial.changes()]
        options = [word for change in changes for word in ("--set", change)]
        typer.echo(f"next:\n  {command_line('ingot', 'run', sweep.path, *options)}")


def _numbers(setting: Setting, comparison: Comparison) -> tuple[str, str]:
    """The value and the difference from the best, each with its standard error."""
    found, best = setting.estimate, comparison.best
    if found is None or best is None:
        return "failed", ""
    difference = setting.minus(best) if setting is not best else None
    return _written(found.value, found.standard_error), "" if difference is None else _written(
        difference.value, difference.standard_error, sign="+"
    )


def _written(value: float, error: float, sign: str = "") -> str:
    return f"{value:{sign}.4g}" + (f" ± {error:.2g}" if math.isfinite(error) else "")
