"""Makes `ingot KIND FILE` of a kind of stage: what all kinds have, and what the kind itself declares (workspace/command.py)."""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Collection
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ingot.cli.given import refuse_given
from ingot.cli.options import RUNS, InputOption, JsonOption, RunsOption, SeedOption, SetOption
from ingot.cli.run_stages import run_stages
from ingot.cli.show import console, print_json
from ingot.workspace.command import CommandOption, Preview
from ingot.workspace.errors import RecipeError
from ingot.workspace.runs import find_stage
from ingot.workspace.stage import Stage

if TYPE_CHECKING:
    from ingot.recipe.recipe import Recipe

STAGE_FILE = "A recipe, or a YAML file of this stage's options."
FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help=STAGE_FILE, show_default=False)]


def add_stage_command(stage: Stage, to: typer.Typer, name: str, panel: str | None = None) -> None:
    """`ingot KIND FILE` for one kind of stage, as the command `name` of `to`."""

    def command(context: typer.Context, file: Path, **given: Any) -> None:
        _run(stage, context, file, given)

    taken = _parameters(stage)
    command.__signature__ = inspect.Signature(taken)  # type: ignore[attr-defined]  # typer reads the options from it
    command.__annotations__ = {each.name: each.annotation for each in taken}
    takes = [role + (" (optional)" if role in stage.optional else "") for role in stage.needs]
    help_text = f"{stage.does} Reads: {', '.join(takes) or 'nothing'}. Writes: {', '.join(stage.makes)}."
    to.command(name, help=help_text, short_help=stage.does, rich_help_panel=panel)(command)


def _parameters(stage: Stage) -> list[Parameter]:
    """Those of every stage, with the kind's own in between; a stage that takes nothing has no --input."""
    dry_run = Annotated[bool, typer.Option("--dry-run", help=stage.dry_run_help)]
    options: list[tuple[str, Any, Any]] = [("input", InputOption, None)] if stage.needs else []
    options += [("set", SetOption, None), *((each.name, _annotated(each), None) for each in stage.command_options)]
    options += [("seed", SeedOption, None), ("runs", RunsOption, RUNS)]
    options += [("dry_run", dry_run, False), ("as_json", JsonOption, False)]
    kind = Parameter.POSITIONAL_OR_KEYWORD
    return [
        Parameter("context", kind, annotation=typer.Context),
        Parameter("file", kind, annotation=FileArgument),
        *(Parameter(name, kind, default=default, annotation=annotation) for name, annotation, default in options),
    ]


def _annotated(option: CommandOption) -> Any:
    words: dict[str, Any] = {"metavar": option.metavar, "help": option.help, "min": option.minimum}
    return Annotated[option.type | None, typer.Option(f"--{option.name}", **words)]


def _run(stage: Stage, context: typer.Context, file: Path, given: dict[str, Any]) -> None:
    from ingot.recipe.single import load_stage

    own = {each: given[each.name] for each in stage.command_options if given[each.name] is not None}
    printing = {each.name: value for each, value in own.items() if each.prints}
    for name in printing:
        refuse_given(context, ("dry_run", "as_json"), f"with --{name}, which prints examples")
    options = {each.name: value for each, value in own.items() if not each.prints}
    inputs = dict(_split_input(text) for text in given.get("input") or ())
    changes, seed = given["set"] or (), given["seed"]
    recipe, names = load_stage(file, stage.kind, changes, inputs=inputs, options=options, seed=seed)
    runs, dry_run, as_json = given["runs"], given["dry_run"], given["as_json"]
    if printing:
        _show_examples(stage, recipe, names, runs, *printing.values())
        return
    if dry_run:
        found = [stage.dry_run(each.config) for each in recipe.stages if each.name in names]
        previews = [preview for preview in found if preview is not None]
        if previews:
            _show_previews(previews, as_json=as_json)
            return
    run_stages(recipe, runs, as_json=as_json, report=False, only=names, dry_run=dry_run)


def _show_examples(stage: Stage, recipe: Recipe, names: Collection[str], runs: Path, count: int) -> None:
    """Print what the stage gives of each of these stages, made in a folder that is deleted."""
    from ingot.recipe.flow import check_inputs
    from ingot.recipe.folders import input_paths
    from ingot.recipe.work import list_work
    from ingot.workspace.progress import Progress
    from ingot.workspace.stage import StageFolder

    works = list_work(recipe, runs)
    check_inputs(works, set(names), set(names), recipe)
    folders = {work.stage.name: work.folder for work in works}
    for work in (work for work in works if work.stage.name in names):
        with tempfile.TemporaryDirectory() as scratch:
            folder = StageFolder(Path(scratch), work.stage.seed, Progress())  # which says nothing
            texts = list(stage.examples(work.stage.config, input_paths(work.stage.inputs, folders), folder, count))
        typer.echo("\n\n".join(texts))


def _show_previews(previews: list[Preview], *, as_json: bool) -> None:
    if as_json:
        print_json([preview.as_json() for preview in previews])
    else:
        typer.echo("\n\n".join("\n".join(preview.lines(console().width)) for preview in previews))


def _split_input(text: str) -> tuple[str, str]:
    role, equals, path = text.partition("=")
    if not (role and equals and path):
        raise RecipeError("an input needs a role and a path", place=f"--input {text}", fix="write --input ROLE=PATH")
    return role, str(find_stage(Path(path)))
