"""What commands print: tables for people, JSON for machines."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from ingot.recipe.doctor import Check
    from ingot.recipe.flow import RunResult
    from ingot.recipe.plan import Plan

PIPE_WIDTH = 120


def print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def result_as_json(result: RunResult) -> dict[str, Any]:
    from ingot.recipe.flow import result_bytes

    sizes = result_bytes(result)
    return {
        "name": result.name,
        "folder": str(result.folder),
        "report": str(result.report) if result.report else None,
        "checkpoint": str(result.checkpoint) if result.checkpoint else None,
        "stages": [stage.as_json() | {"bytes": sizes.get(stage.name)} for stage in result.stages],
    }


def show_result(result: RunResult, *, dry_run: bool) -> None:
    """The table at the end of a run, and what to do next."""
    from rich.table import Table
    from rich.text import Text

    from ingot.recipe.flow import result_bytes
    from ingot.recipe.record import headline
    from ingot.workspace.files import folder_bytes
    from ingot.workspace.progress import format_seconds

    sizes = result_bytes(result)
    table = Table("stage", "status", "time", "size", "result", box=None, pad_edge=False, header_style="bold")
    for stage in result.stages:
        status = "to run" if dry_run and stage.status == "pending" else stage.status
        seconds = format_seconds(stage.seconds) if stage.seconds is not None else ""
        size = byte_size(sizes[stage.name]) if stage.name in sizes else ""
        table.add_row(stage.name, status, Text(seconds, justify="right"), size, Text(headline(stage.summary)))
    console().print(table)
    if dry_run:
        return
    unused = result.unused()
    if unused:
        total = byte_size(sum(folder_bytes(folder) for folder in unused))
        count = f"{len(unused)} folder" + ("s" if len(unused) > 1 else "")
        typer.echo(f"{result.folder} also holds {count} ({total}) of other versions of this recipe")
    lines = [f"report: {result.report}"] if result.report else [f"results: {result.folder}"]
    next_commands = [f"ingot chat {result.checkpoint}"] if result.checkpoint else []
    next_commands += [f"ingot report {result.folder} --open"]
    for line in [*lines, "next:", *(f"  {command}" for command in next_commands)]:
        typer.echo(line)  # not through rich: it would wrap paths that a person wants to copy


def show_plan(made: Plan) -> None:
    """A plan as a table."""
    from rich.table import Table
    from rich.text import Text

    from ingot.workspace.progress import format_seconds

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("stage", "takes", "status", "hash"):
        table.add_column(column, no_wrap=column != "takes")
    for column in ("parameters", "tokens", "FLOPs", "memory", "time"):
        table.add_column(column, justify="right", no_wrap=True)
    for stage in made.stages:
        cost = stage.cost
        takes = [f"{len(name)} {role}" if isinstance(name, dict) else name for role, name in stage.inputs.items()]
        done = "" if stage.status == "done" else "~"
        table.add_row(
            Text(stage.name if stage.name.startswith(stage.kind) else f"{stage.name} ({stage.kind})"),
            Text(", ".join(dict.fromkeys(takes))),
            stage.status,
            stage.hash[:6],
            *(quantity(value) for value in (cost.parameters, cost.tokens, cost.flops)),
            byte_size(cost.memory_bytes) if cost.memory_bytes else "",
            done + format_seconds(stage.seconds) if stage.seconds is not None else "",
        )
    console().print(table)
    speed = f"{made.machine.flops_per_second / 1e9:,.0f} GFLOP/s"
    how = "measured" if made.machine.measured else "assumed; --measure measures it"
    typer.echo(f"{made.machine.device}: {speed} ({how}). Training is taken to reach half of that.")
    typer.echo(f"results: {made.folder}")


def show_checks(checks: Sequence[Check]) -> None:
    """The doctor's findings, one a line."""
    colours = {"ok": typer.colors.GREEN, "warn": typer.colors.YELLOW, "fail": typer.colors.RED}
    width = max(len(check.name) for check in checks)
    for check in checks:
        status = typer.style(f"{check.status:4}", fg=colours[check.status])
        typer.echo(f"{status}  {check.name:{width}}  {check.text}")
        if check.fix and check.status != "ok":
            typer.echo(f"{'':{width + 8}}fix: {check.fix}")


def console() -> Console:
    """Standard output; wide enough for a table where there is no terminal to ask."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else PIPE_WIDTH)


def quantity(value: float | None) -> str:
    """`3.2M`: three digits and a unit."""
    if value is None:
        return ""
    for unit in ("", "k", "M", "G", "T", "P"):
        if value < 1000:
            return f"{value:.3g}{unit}"
        value /= 1000
    return f"{value:.3g}E"


def byte_size(value: float) -> str:
    """`3.2MB`."""
    return quantity(value) + "B"
