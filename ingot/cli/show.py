"""What commands print: tables for people, JSON for machines."""

from __future__ import annotations

import json
import os
import shlex
import sys
import textwrap
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ingot.recipe.stages import STAGES

if TYPE_CHECKING:
    from rich.console import Console

    from ingot.planner.check import Check
    from ingot.recipe.flow import RunResult

PIPE_WIDTH = 120
CHECK_COLOURS = {"ok": typer.colors.GREEN, "warn": typer.colors.YELLOW, "fail": typer.colors.RED}
CHECK_INDENT = 26


def command_line(*words: str | Path) -> str:
    """A command to copy into a shell, whatever is in its paths."""
    return shlex.join(map(str, words))


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


def show_result(result: RunResult, *, to_run: Collection[str] | None = None, suggestions: Sequence[str] = ()) -> None:
    """The table at the end of a run, and what to do next; of a dry run the table alone, with what it would run."""
    from rich.table import Table
    from rich.text import Text

    from ingot.recipe.flow import result_bytes
    from ingot.recipe.record import headline
    from ingot.workspace.files import folder_bytes
    from ingot.workspace.progress import format_seconds

    sizes = result_bytes(result)
    table = Table("stage", "status", "time", "size", "result", box=None, pad_edge=False, header_style="bold")
    for stage in result.stages:
        status = "to run" if to_run is not None and stage.name in to_run and stage.status == "pending" else stage.status
        seconds = format_seconds(stage.seconds) if stage.seconds is not None else ""
        size = byte_size(sizes[stage.name]) if stage.name in sizes else ""
        table.add_row(stage.name, status, Text(seconds, justify="right"), size, Text(headline(stage.summary)))
    console().print(table)
    if to_run is not None:
        return
    unused = result.unused()
    if unused:
        total = byte_size(sum(folder_bytes(folder) for folder in unused))
        count = f"{len(unused)} folder" + ("s" if len(unused) > 1 else "")
        typer.echo(f"{result.folder} also holds {count} ({total}) of other versions of this recipe")
    lines = [f"report: {result.report}"] if result.report else [f"results: {result.folder}"]
    next_commands = [command_line("ingot", "chat", result.checkpoint)] if result.checkpoint else []
    next_commands += [command_line("ingot", "report", result.folder, "--open")]
    for line in [*lines, "next:", *(f"  {command}" for command in (*next_commands, *suggestions))]:
        typer.echo(line)  # not through rich: it would wrap paths that a person wants to copy


def show_results(result: RunResult, names: Collection[str] | None) -> bool:
    """Print what stages of these names say of their results, for kinds that say it; whether there was one."""
    found = [
        (stage.folder, STAGES.find(stage.kind).results(stage.folder))
        for stage in result.stages
        if names is None or stage.name in names
    ]
    shown = [(folder, results) for folder, results in found if results is not None]
    for folder, results in shown:
        show_rows(results.rows)
        typer.echo(f"{results.artifact}: {folder / results.artifact}")
        if results.next:
            typer.echo(f"next:\n  {command_line(*results.next)}")
    return bool(shown)


def show_rows(rows: Sequence[Mapping[str, str]]) -> None:
    """A table of texts and, right of the first column, numbers."""
    from rich.table import Table

    table = Table(*(rows[0] if rows else ()), box=None, pad_edge=False, header_style="bold")
    for column in table.columns[1:]:
        column.justify = "right"
    for row in rows:
        table.add_row(*row.values())
    console().print(table)


def show_checks(checks: Iterable[Check]) -> list[Check]:
    """The doctor's findings as they come, and how many of each kind there were; returns them all."""
    room = max(20, console().width - CHECK_INDENT)
    shown: list[Check] = []
    for check in checks:
        lines = [part for line in check.text.split("\n") for part in textwrap.wrap(line, room) or [""]]
        if check.fix and check.status != "ok":
            lines += textwrap.wrap(f"→ {check.fix}", room, subsequent_indent="  ")
        status = typer.style(f"{check.status:4}", fg=CHECK_COLOURS[check.status])
        typer.echo(f"{status}  {check.name:{CHECK_INDENT - 8}}  {lines[0]}".rstrip())
        for line in lines[1:]:
            typer.echo(" " * CHECK_INDENT + line)
        shown.append(check)
    counts = {status: sum(check.status == status for check in shown) for status in CHECK_COLOURS}
    typer.echo(" · ".join(f"{count} {status}" for status, count in counts.items() if count))
    return shown


def show_layouts(pattern: str, device: str, processes: int, *, as_json: bool) -> bool:
    """The layouts that match, each as soon as it is known; returns whether all are right."""
    from ingot.planner.check_layouts import HEADING, HOW, as_line, as_record, examine_layouts

    typer.echo(HEADING, err=as_json)  # a person who keeps the JSON in a file sees how far it is
    machine, verdicts = examine_layouts(
        pattern, device, processes, lambda verdict: typer.echo(as_line(verdict), err=as_json)
    )
    if as_json:
        print_json(as_record(machine, verdicts))
    else:
        counts = Counter(verdict.verdict for verdict in verdicts)
        typer.echo(" · ".join(f"{count} {name}" for name, count in counts.items()) + f" ({HOW[machine.how]})")
    return all(verdict.good for verdict in verdicts)


def console() -> Console:
    """Standard output; wide enough for a table where there is no terminal to ask."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else PIPE_WIDTH)


def quantity(value: float | None) -> str:
    """`3.2M`: three digits and a unit."""
    if value is None:
        return ""
    for unit in ("", "k", "M", "G", "T", "P", "E", "Z"):
        if value < 1000:
            return f"{value:.3g}{unit}"
        value /= 1000
    return f"{value:.3g}Y"


def byte_size(value: float) -> str:
    """`3.2MB`."""
    return quantity(value) + "B"
