"""`ingot ablate`: a baseline, interventions that change one thing each, seeds, and a table of decisions."""

from __future__ import annotations

import math
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ingot.cli.options import RUNS, JsonOption, RunsOption
from ingot.cli.show import command_line, console, print_json, quantity

if TYPE_CHECKING:
    from rich.console import JustifyMethod

    from ingot.lab.ablation import Ablation, Arm
    from ingot.lab.findings import Findings
    from ingot.lab.run_ablation import Budget
    from ingot.lab.speed_up import SpeedUp

HOUR = 3600.0
COLOURS = {"adopt": "green", "reject": "red", "pruned": "red", "cannot tell": "yellow"}


def ablate_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The ablation, a YAML file.", show_default=False)],
    jobs: Annotated[
        int, typer.Option("--jobs", metavar="N", min=1, help="Runs side by side, each a process of its own.")
    ] = 1,
    budget_hours: Annotated[
        float | None,
        typer.Option("--budget-hours", metavar="H", min=0.0, help="Most hours of all runs together, over all calls."),
    ] = None,
    budget_flops: Annotated[
        float | None,
        typer.Option("--budget-flops", metavar="F", min=0.0, help="Most training FLOPs, over all calls: 1e15."),
    ] = None,
    runs: RunsOption = RUNS,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", "--plan", help="Print what would run and what it costs; write nothing.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Compare a recipe with variants of it over seeds: difference, interval, p-value, cost, verdict, and a notebook."""
    from ingot.lab.ablation import plan_ablation
    from ingot.lab.run_ablation import Budget

    ablation = plan_ablation(file)
    budget = Budget(None if budget_hours is None else budget_hours * HOUR, budget_flops)
    if dry_run:
        show_plan(ablation, runs, budget, as_json=as_json)
    else:
        run(ablation, runs, jobs, budget, as_json=as_json)


def show_plan(ablation: Ablation, runs: Path, budget: Budget, *, as_json: bool) -> None:
    """The arms with what each changes and costs, and the cost of all that is left."""
    from rich.table import Table
    from rich.text import Text

    from ingot.lab.cost import plan_cost
    from ingot.workspace.progress import format_seconds

    cost = plan_cost(ablation, runs)
    if as_json:
        print_json(cost.as_json())
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("arm", "changes", "matched by", "parameters", "FLOPs", "test", "to do"):
        table.add_column(column, justify="right" if column in ("parameters", "FLOPs") else "left")
    for row in cost.arms:
        arm, left = row.arm, f"{row.left} of {row.runs} runs" if row.left else "finished"
        numbers = (quantity(row.parameters).replace("G", "B"), quantity(row.flops))
        test = "" if arm.name == "baseline" or arm.length != 1 else "paired" if arm.paired else "Welch"
        table.add_row(*(Text(cell) for cell in (arm.name, _changes(arm), _matched(arm), *numbers, test, left)))
    console().print(table)
    flops = [] if cost.flops is None else [f"{quantity(cost.flops)}FLOPs"]
    hours = [] if cost.seconds is None else [f"about {format_seconds(cost.seconds)} of training ({cost.machine})"]
    typer.echo(f"to do: {cost.left} of {len(ablation.runs)} runs, {'; '.join(flops + hours) or 'cost not known'}")
    if cost.shared:
        typer.echo(f"once for all: {', '.join(cost.shared)}")
    if budget.flops is not None and cost.flops is not None and cost.flops + cost.spent_flops > budget.flops:
        typer.echo(f"this is more than the budget of {quantity(budget.flops)}FLOPs: what does not fit is not run")
    if budget.seconds is not None and cost.seconds is not None and cost.seconds + cost.spent_seconds > budget.seconds:
        typer.echo(f"this is more than the budget of {format_seconds(budget.seconds)}: what does not fit is not run")
    typer.echo(f"{_family(ablation)}\nresults: {ablation.folder(runs)}")


def run(ablation: Ablation, runs: Path, jobs: int, budget: Budget, *, as_json: bool) -> None:
    """Run what is left, write the notebook after every run, and print the decisions."""
    from ingot.cli.stop import note_signals, resume_command
    from ingot.lab.findings import find
    from ingot.lab.run_ablation import run_ablation
    from ingot.lab.state import read_state
    from ingot.report.ablation import contents, write_notebook
    from ingot.workspace.errors import Interrupted
    from ingot.workspace.interrupt import StopSignal
    from ingot.workspace.progress import PlainProgress, Progress

    folder = ablation.folder(runs)
    if not as_json:
        show_plan(ablation, runs, budget, as_json=False)

    def write() -> None:
        write_notebook(find(ablation, runs, read_state(folder)), folder)

    stop, received = StopSignal(), list[int]()
    try:
        with note_signals(stop, received):
            progress = Progress() if as_json else PlainProgress()
            state = run_ablation(ablation, runs, jobs=jobs, budget=budget, progress=progress, stop=stop, after=write)
    except Interrupted as error:
        typer.echo(f"{error}\nto resume: {resume_command()}", err=True)
        raise typer.Exit(0 if received[-1:] == [signal.SIGTERM] else 130) from None
    found = find(ablation, runs, state)
    page = write_notebook(found, folder)
    if as_json:
        print_json(contents(found) | {"page": str(page)})
    else:
        show_decisions(found)
        typer.echo(f"notebook: {page}\ntables: {folder / 'ablation.json'}")
    if found.failed:
        raise typer.Exit(1)


def show_decisions(found: Findings) -> None:
    """The decision table, the noise, and what is missing."""
    from rich.table import Table
    from rich.text import Text

    from ingot.lab.notes import notes

    first = found.metrics[0]
    gains = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("arm", first.name, "gain", "95 % interval", "p (Holm)", "verdict"):
        named = column in ("arm", first.name)  # long names fold; numbers and the verdict stay whole
        justify: JustifyMethod = "left" if column in ("arm", "verdict") else "right"
        gains.add_column(column, justify=justify, no_wrap=not named, overflow="fold")
    costs = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("arm", "parameters", "FLOPs", "tokens/s", "memory", "speed-up"):
        costs.add_column(column, justify="left" if column == "arm" else "right", overflow="fold")
    base = found.arms[0]
    noise = found.decisions.noise[0]
    spread = "" if noise.deviation is None else f" ± {noise.deviation:.2g}"
    gains.add_row("baseline", f"{noise.mean:.5g}{spread}" if first.arms.get("baseline") else "–")
    costs.add_row("baseline", *_costs(found, 0))
    reasons = []
    for number, decision in enumerate(found.decisions.decisions, start=1):
        arm = found.arms[number].arm
        one = next((each for each in decision.differences if each.metric == first.name), None)
        values = list(first.arms.get(arm.name, {}).values())
        name = arm.name + (" (confounded)" if arm.confounded else "")
        cells = [name, f"{math.fsum(values) / len(values):.5g}" if values else "–"]
        if one is None or one.gain is None or one.gain_interval is None:
            cells += ["", "", ""]
        else:
            low, high = one.gain_interval
            interval = f"{low:+.2%} to {high:+.2%}" if math.isfinite(low) else ""
            cells += [f"{one.gain:+.2%}", interval, f"{one.corrected:.2g}" if one.tested else ""]
        gains.add_row(*map(Text, cells), Text(decision.kind, COLOURS[decision.kind]))
        costs.add_row(*map(Text, (name, *_costs(found, number), _speed_up(found.arms[number].speed_up))))
        reasons.append(f"{name}: {decision.why}")
    console().print(gains)
    for line in reasons:
        typer.echo(line)
    console().print(costs)
    for line in notes(found):
        typer.echo(line)
    for each in found.failed:
        typer.echo(f"failed: {each.run.name}: {each.error.splitlines()[0]} (the same command tries it again)", err=True)
    if base.parameters is None:
        typer.echo(f"parameters of {found.ablation.targets[0].stage} are not known from the recipe")
    adopted = [
        arm.arm for arm, one in zip(found.arms[1:], found.decisions.decisions, strict=True) if one.kind == "adopt"
    ]
    for arm in adopted:
        options = [word for change in (*found.ablation.common, *arm.changes) for word in ("--set", change)]
        typer.echo(f"next, with {arm.name}:\n  {command_line('ingot', 'run', found.ablation.baseline_path, *options)}")


def _costs(found: Findings, number: int) -> tuple[str, str, str, str]:
    """What an arm costs, as its share of the baseline where it differs."""
    own, base = found.arms[number], found.arms[0]

    def shown(value: float | None, other: float | None, text: str) -> str:
        if value is None:
            return "–"
        return text if number == 0 or not other else "=" if value == other else f"{value / other - 1:+.1%}"

    return (
        shown(own.parameters, base.parameters, quantity(own.parameters).replace("G", "B")),
        shown(own.flops, base.flops, quantity(own.flops)),
        shown(own.tokens_per_second, base.tokens_per_second, f"{own.tokens_per_second or 0:,.0f}"),
        shown(own.memory_gib, base.memory_gib, f"{own.memory_gib or 0:.2f} GiB"),
    )


def _speed_up(found: SpeedUp | None) -> str:
    if found is None:
        return "–"
    high = f"{found.high:.2f}" if math.isfinite(found.high) else "…"
    low = f"{found.low:.2f}" if found.low > 0 else "…"
    return f"{found.value:.2f} [{low}, {high}]{'*' if found.extrapolated else ''}"


def _changes(arm: Arm) -> str:
    if arm.length != 1:
        return f"{arm.length:g} of the steps, for the speed-up"
    return ", ".join(variable.key for variable in arm.variables) + (" (confounded)" if arm.confounded else "")


def _matched(arm: Arm) -> str:
    return "" if arm.matched is None else arm.matched.text


def _family(ablation: Ablation) -> str:
    tests = (len(ablation.arms) - 1) * len(ablation.targets)
    metrics = ", ".join(target.text for target in ablation.targets)
    tested = f"{tests} difference{'' if tests == 1 else 's'}"
    return f"compared by {metrics}: {tested}, Holm's level {ablation.config.level:g} for all of them together"
