"""`ingot watch` and `ingot run --watch`: run a command under a watchdog that restarts it when it dies or hangs."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from ingot.cli.stop import without
from ingot.workspace.errors import RecipeError

HangOption = Annotated[
    float,
    typer.Option(
        "--hang-after",
        metavar="SECONDS",
        min=0.1,
        help="Seconds without a sign of life that count as hung; more if steps are slow.",
    ),
]
HANG_AFTER, STARTS = 300.0, 3


def watch_command(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of the run.", show_default=False)],
    hang_after: HangOption = HANG_AFTER,
    starts: Annotated[
        int,
        typer.Option("--starts", metavar="N", min=1, help="Give up after this many starts without a new checkpoint."),
    ] = STARTS,
) -> None:
    """Restart a training command when it dies or hangs: ingot watch runs/NAME -- COMMAND."""
    if not context.args:
        raise RecipeError("no command to watch", fix="write it after --, as in: ingot watch runs/NAME -- torchrun …")
    if shutil.which(context.args[0]) is None:
        raise RecipeError(f"there is no program {context.args[0]} to start", fix="give its path, or install it")
    watch(context.args, context.args, folder, hang_after, starts)


def watch_this(folder: Path, hang_after: float) -> NoReturn:
    """This command without --watch, under the watchdog. A restart leaves out `--from`, which would delete the work."""
    arguments = without("--hang-after", [argument for argument in sys.argv[1:] if argument != "--watch"])
    command = [sys.executable, "-m", "ingot"]
    watch([*command, *arguments], [*command, *without("--from", arguments)], folder, hang_after, STARTS)


def watch(first: Sequence[str], again: Sequence[str], folder: Path, hang_after: float, starts: int) -> NoReturn:
    """Watch a command, and end with its exit code."""
    from ingot.train.guards.watchdog import Patience, Watchdog

    patience = Patience(silence=hang_after, grace=min(Patience.grace, hang_after), starts=starts)
    raise typer.Exit(Watchdog(first, again, folder, patience, _shout).run())


def _shout(line: str) -> None:
    typer.secho(line, err=True, bold=True)
