"""`ingot merge`: make one checkpoint of several."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ingot.cli.chat import MODEL_HELP
from ingot.cli.convert import ForceOption, show_written
from ingot.workspace.runs import find_checkpoint


def merge_command(
    models: Annotated[list[Path], typer.Argument(metavar="MODEL…", help=MODEL_HELP, show_default=False)],
    to: Annotated[Path, typer.Option("--to", metavar="FOLDER", help="Folder to write.", show_default=False)],
    method: Annotated[
        str,
        typer.Option(
            "--method",
            metavar="NAME",
            help="linear, slerp, task_arithmetic, ties, dare_linear, dare_ties, or a function of yours, file.py:median.",
        ),
    ] = "linear",
    weight: Annotated[
        list[float] | None,
        typer.Option("--weight", metavar="W", help="Weight of a model, in their order; repeat for each."),
    ] = None,
    t: Annotated[
        float | None, typer.Option("--t", metavar="T", help="slerp: 0 is the first model, 1 the second; default 0.5.")
    ] = None,
    base: Annotated[
        Path | None, typer.Option("--base", metavar="MODEL", help="Model from which differences are taken.")
    ] = None,
    density: Annotated[
        float | None,
        typer.Option(
            "--density", metavar="D", help="ties, dare_*: share of each difference that is kept; default 0.5."
        ),
    ] = None,
    rescale: Annotated[
        str | None,
        typer.Option("--rescale", metavar="HOW", help="dare_*: norm (as mergekit, default) or density (as the paper)."),
    ] = None,
    scale: Annotated[
        float | None,
        typer.Option("--scale", metavar="L", help="Factor on the merged difference of methods with a base; default 1."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="N", min=0, help="dare_*: seed of what is kept; default 0.")
    ] = None,
    force: ForceOption = False,
) -> None:
    """Merge checkpoints of one architecture: mean, slerp, task arithmetic, TIES, DARE. Writes: a checkpoint."""
    from ingot.checkpoints.merge import merge
    from ingot.checkpoints.merge_config import MergeConfig
    from ingot.recipe.problems import Problems
    from ingot.recipe.tree import to_node
    from ingot.recipe.validate import validate

    options = {"weights": weight or None, "t": t, "density": density, "rescale": rescale, "scale": scale}
    given = {name: value for name, value in options.items() if value is not None}
    problems = Problems()
    config = validate(MergeConfig, to_node({"method": method, **given}, "ingot merge"), "merge", problems)
    if seed is not None and not method.startswith("dare"):
        problems.add(f"--seed: {method} draws nothing at random", place="ingot merge", fix="leave it out")
    problems.raise_if_any()
    assert isinstance(config, MergeConfig)
    paths = [find_checkpoint(path) for path in models]
    merge(paths, config, to, base=None if base is None else find_checkpoint(base), seed=seed or 0, replace=force)
    show_written("checkpoint", to)
