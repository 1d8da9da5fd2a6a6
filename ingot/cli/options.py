"""Names the options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="STAGE.KEY=VALUE", help="Set an option of the recipe; may be repeated."),
]
InputOption = Annotated[
    list[str] | None,
    typer.Option(
        "--input", metavar="ROLE=PATH", help="Input of the stage: an artifact or a stage's folder; may be repeated."
    ),
]
SeedOption = Annotated[
    int | None, typer.Option("--seed", metavar="N", min=0, help="Seed to use instead of the file's.")
]
RunsOption = Annotated[Path, typer.Option("--runs", metavar="DIR", help="Folder that holds the run folders.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Print what would run; write nothing.")]
RUNS = Path("runs")
