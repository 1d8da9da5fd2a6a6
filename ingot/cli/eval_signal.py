"""`ingot eval signal`: which metrics can be trusted at this size, by the histories of one run or of several.

ingot eval signal RUN/eval-pretrain
ingot eval signal small=A/eval-pretrain small=B/eval-pretrain large=C/eval-pretrain     two seeds of one model, and another model
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ingot.cli.show import console, print_json
from ingot.workspace.errors import RecipeError
from ingot.workspace.runs import find_scores

if TYPE_CHECKING:
    from ingot.evals.scores.history import Measurement


def signal_command(
    histories: Annotated[
        list[str],
        typer.Argument(
            metavar="[MODEL=]FOLDER...",
            help="Folders of eval stages with `every`; those of the same MODEL are its seeds.",
            show_default=False,
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say of each metric whether it is stable, noisy or blind at this size, and why."""
    from ingot.evals.scores.history import signals

    found = signals(read_histories(histories))
    if as_json:
        print_json([each.as_json() for each in found.values()])
        return
    from rich.table import Table

    table = Table("metric", "signal", "why", box=None, pad_edge=False, header_style="bold")
    for each in found.values():
        table.add_row(each.metric, each.kind, "; ".join(each.reasons))
    console().print(table)


def read_histories(named: list[str]) -> dict[tuple[str, int], list[Measurement]]:
    """Histories by model and seed. A folder without a name is a model of its own."""
    from ingot.evals.scores.history import read_history

    seeds: Counter[str] = Counter()
    found: dict[tuple[str, int], list[Measurement]] = {}
    for text in named:
        model, _, folder = text.rpartition("=")
        found_at = find_scores(Path(folder))
        if not found_at.exists():
            fix = "give RUNS/NAME, or RUNS/NAME/STAGE of an eval stage with `every: N`"
            raise RecipeError("there is no such run or stage", place=folder, fix=fix)
        rows = read_history(found_at)
        if not rows:
            fix = "give the folder of an eval stage with `every: N`, or of `ingot eval follow`"
            raise RecipeError("there is no history of several steps", place=folder, fix=fix)
        model = model or folder
        found[model, seeds[model]] = list(rows)
        seeds[model] += 1
    return found
