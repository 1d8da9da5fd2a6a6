"""What `ingot plan` prints: the stages and, on GPUs, layout, memory, speed and cost of each training stage."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from ingot.cli.show import byte_size, console, quantity

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from ingot.planner.placement import Placement
    from ingot.planner.plan import Plan, PlannedStage

BAR = 40
WIDE = 100  # columns of a terminal; a narrower one has no room for what stages take
COLOURS = {
    "weights": "blue",
    "gradients": "cyan",
    "optimizer": "magenta",
    "copies": "bright_blue",
    "activations": "yellow",
    "loss": "red",
    "workspace": "bright_black",
    "sampler": "green",
    "reference": "bright_green",
    "teacher": "bright_green",
    "cache": "bright_magenta",
}
WHOLE = ("sampler", "reference", "teacher", "cache")
"""Of stages that sample: what every process has whole (`Stage.memory`)."""
UNEXPLAINED = 0.95
"""Of the published speed: below it, a plan says that what it names does not explain the whole difference."""
GIB = 1024**3


def show_plan(made: Plan) -> None:
    """A plan as a table, and below it one card for every stage that runs on GPUs."""
    placed = [stage for stage in made.stages if stage.placement is not None or stage.problem is not None]
    console().print(_stages(made, on_gpus=bool(placed)))
    for stage in placed:
        console().print()
        console().print(_card(stage, made))
    if not placed:
        speed = f"{made.machine.flops_per_second / 1e9:,.0f} GFLOP/s"
        how = "measured" if made.machine.measured else "assumed; --measure measures it"
        for stage in made.stages:
            _sampler_memory(stage)
        typer.echo(f"{made.machine.device}: {speed} ({how}). Training is taken to reach half of that.")
    if made.absent:
        typer.echo(f"missing inputs: {', '.join(made.absent)}")
    typer.echo(f"results: {made.folder}")


def _stages(made: Plan, *, on_gpus: bool) -> Table:
    """A line for each stage, with its inputs if the terminal is wide enough.

    On GPUs the memory of each card has a table of its own, and long times are in days.
    """
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    wide = console().width >= WIDE
    for column in ("stage", *(("reads",) if wide else ()), "status", "hash"):
        table.add_column(column, no_wrap=column != "reads")
    for column in ("parameters", "tokens", "FLOPs", *(() if on_gpus else ("memory",)), "time"):
        table.add_column(column, justify="right", no_wrap=True)
    for stage in made.stages:
        cost = stage.cost
        reads = [f"{len(name)} {role}" if isinstance(name, dict) else name for role, name in stage.inputs.items()]
        done = "" if stage.status == "done" else "~"
        numbers = [_count(cost.parameters), _count(cost.tokens), quantity(cost.flops)]
        if not on_gpus:
            numbers.append(byte_size(cost.memory_bytes) if cost.memory_bytes else "")
        table.add_row(
            Text(stage.name if stage.name.startswith(stage.kind) else f"{stage.name} ({stage.kind})"),
            *((Text(", ".join(dict.fromkeys(reads))),) if wide else ()),
            stage.status,
            stage.hash[:6],
            *numbers,
            done + _time(stage.seconds) if stage.seconds is not None else "",
        )
    return table


def _sampler_memory(stage: PlannedStage) -> None:
    """One line for a stage that holds more than its training needs."""
    held = stage.cost.sampling
    parts = [f"{name} {byte_size(part)}" for name, part in held.parts.items() if part]
    if parts:
        when = "before its training" if held.before else "during its training"
        typer.echo(f"{stage.name} holds {when}, in every process: {', '.join(parts)}")


def _count(value: float | None) -> str:
    """Parameters and tokens come in billions."""
    return quantity(value).replace("G", "B")


def _time(seconds: float) -> str:
    from ingot.workspace.progress import format_seconds

    days = seconds / 86400
    if days < 2:
        return format_seconds(seconds)
    return f"{days:,.1f} days" if days < 2 * 365 else f"{days / 365:,.0f} years"


def _card(stage: PlannedStage, made: Plan) -> Table:
    """One stage on GPUs: a line each for layout, memory, speed, cost, and what was published."""
    from rich.table import Table
    from rich.text import Text

    card = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    card.add_column(style="bold", no_wrap=True)
    card.add_column()
    card.add_row(Text(stage.name, style="bold green"), Text(_work(stage)))
    placement = stage.placement
    if placement is not None:
        card.add_row("layout", Text(_layout(placement)))
        card.add_row("memory", _memory(placement))
        if placement.speed is not None and placement.fits:
            card.add_row("speed", Text(_speed(placement)))
            card.add_row("takes", Text(_price(stage, made.price)))
            if made.published is not None and stage is max(made.stages, key=lambda one: one.cost.tokens or 0):
                card.add_row("published", Text(made.published.text))
                card.add_row("compared", Text(_compared(made)))
        if placement.fits:
            card.add_row("options", Text(placement.options(), style="cyan"))
    if stage.problem is not None:
        card.add_row(Text("problem", style="red"), Text(stage.problem))
    return card


def _work(stage: PlannedStage) -> str:
    cost = stage.cost
    parts = [f"{_count(cost.parameters)} parameters"] if cost.parameters else []
    parts += [f"{_count(cost.tokens)} tokens"] if cost.tokens else [f"{cost.steps:,} steps"] if cost.steps else []
    parts += [f"{quantity(cost.flops_per_token)}FLOPs per token"] if cost.flops_per_token else []
    return " · ".join(parts)


def _layout(placement: Placement) -> str:
    mesh = placement.mesh
    axes = ("replicate", "shard", "tensor", "context", "pipeline", "expert")
    sizes = " × ".join(f"{axis} {getattr(mesh, axis)}" for axis in axes if getattr(mesh, axis) > 1) or "one device"
    kept = {
        "all": "everything kept",
        "products": "products kept",
        "blocks": "blocks recomputed",
        "budget": "a budget kept",
    }
    several = f", {mesh.pipeline_stages} stages each" if mesh.pipeline_stages > 1 else ""
    name = f"{placement.gpus:,} × {placement.gpu.upper()}"
    return f"{name}: {sizes}{several}; {placement.micro_batch_tokens:,} tokens a pass, {kept[placement.keep]}"


def _memory(placement: Placement) -> Text:
    """The total, a bar of the device's memory, and the parts in the bar's colours: those of training, those of sampling."""
    from rich.text import Text

    from ingot.planner.hardware import find_gpu

    available, held = find_gpu(placement.gpu).memory, placement.memory
    text = Text(f"{held.total / GIB:.1f} of {available / GIB:.0f} GiB per device  ")
    filled, before = 0.0, 0
    for name, part in held.as_json().items():
        filled += part / available * BAR
        end = min(BAR, round(filled))
        text.append("█" * (end - before), style=COLOURS[name])
        before = end
    text.append("░" * (BAR - before), style="bright_black")
    parts = held.as_json()
    for line in ([name for name in parts if name not in WHOLE], [name for name in WHOLE if parts[name]]):
        for number, name in enumerate(line):
            text.append(" · " if number else "\n").append(name, style=COLOURS[name]).append(f" {parts[name] / GIB:.1f}")
    return text


def _speed(placement: Placement) -> str:
    speed = placement.speed
    assert speed is not None and placement.tokens_per_second is not None and placement.mfu is not None
    shares = [
        f"{name} {value / speed.step:.0%}"
        for name, value in (
            ("compute", speed.compute),
            ("communication", speed.communication),
            ("bubble", speed.bubble),
            ("optimizer", speed.optimizer),
        )
        if value / speed.step >= 0.005
    ]
    each = f"{placement.tokens_per_second:,.0f} tokens/s per GPU · MFU {placement.mfu:.0%}"
    return f"{each} · step {speed.step:.2f} s ({', '.join(shares)})"


def _price(stage: PlannedStage, price: float | None) -> str:
    if stage.seconds is None or stage.gpu_hours is None:
        return ""
    text = f"{_time(stage.seconds)} · {stage.gpu_hours:,.0f} GPU-hours"
    return text if price is None else f"{text} · {stage.gpu_hours * price:,.0f} at {price:g} each"


def _compared(made: Plan) -> str:
    """How far the estimate is from the published run, and why; MFU by the count that the plan uses."""
    found = made.comparison
    if found is None:
        return "no ratio: the published run was on another device, or its speed was not published"
    lines = [
        f"this estimate is {found.ratio:.2f} of the published speed "
        f"({found.tokens_per_second:,.0f} / {found.published_tokens_per_second:,.0f} tokens/s per GPU; "
        f"by the count used here the published MFU is {found.published_mfu:.0%}): {found.reason}"
    ]
    for number, one in enumerate(found.explained):
        lines.append(f"{one.ratio:.2f} with {'also ' if number else ''}{one.practice}")
    if found.explained and found.explained[-1].ratio < UNEXPLAINED:
        lines.append("the rest is not explained")
    return "\n".join(lines)
