"""What `ingot eval compare` prints: one line a metric and a difference, and which questions changed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import typer

from ingot.cli.show import console

if TYPE_CHECKING:
    from ingot.evals.scores.compare import ComparedMetric, MetricChange, ModelComparison
    from ingot.evals.scores.scores import Metric

EXAMPLES = 4  # questions that are named, of those gained and of those lost


def show_comparison(comparison: ModelComparison) -> None:
    """The table, what is certain in it, and the questions behind that."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("metric")
    for name in comparison.models:
        table.add_column(name, justify="right", overflow="fold")
    for name in ("difference", "95 % interval", "shows from", "p", "corrected", "questions"):
        table.add_column(name, justify="right")
    for row in comparison.rows:
        for number, change in enumerate(row.changes):
            values = [_value(metric) for metric in row.metrics]
            if len(row.changes) > 1:  # each difference on a line of its own: show only the two models it is between
                values = [text if place in (0, number + 1) else "" for place, text in enumerate(values)]
            label = row.name if row.held_out else f"{row.name} (not held out)"
            style = "" if change is None or not change.certain else "green" if change.better else "red"
            cells = _cells(change)
            table.add_row(label, *values, Text(cells[0], style), *cells[1:])
    console().print(table)
    for line in _notes(comparison):
        typer.echo(line)


def _value(metric: Metric | None) -> str:
    if metric is None:
        return ""
    error = metric.estimate.standard_error
    return f"{metric.estimate.value:.4g}" + (f" ±{error:.2g}" if math.isfinite(error) else "")


def _cells(change: MetricChange | None) -> tuple[str, str, str, str, str, str]:
    if change is None:
        return ("", "", "", "", "", "")
    low, high = change.difference.interval()
    interval = f"{low:+.3g} to {high:+.3g}" if math.isfinite(low) else "unknown"
    questions = f"{change.shared} in pairs" if change.shared else "not paired"
    smallest = f"{change.smallest_shown:.2g}" if math.isfinite(change.smallest_shown) else "unknown"
    chances = _chance(change.p_value), _chance(change.corrected)
    return (f"{change.difference.value:+.4g}", interval, smallest, *chances, questions)


def _chance(p_value: float) -> str:
    return "<0.0001" if p_value < 0.0001 else f"{p_value:.2g}"


def _notes(comparison: ModelComparison) -> list[str]:
    lines = []
    for row in comparison.rows:
        for name, change in zip(comparison.models[1:], row.changes, strict=True):
            if change is not None and change.certain:
                lines.append(f"{row.name}, {name}: {_said(row, change)}")
    if not comparison.tests:
        lines.append("they have no metric in common: measure them with the same suites")
    elif not lines:
        lines.append("no difference is larger than chance explains")
    if comparison.tests:
        lines.append("shows from: a true difference of this size is found in four comparisons of five")
    if comparison.tests > 1:
        lines.append(
            f"p-values are of single differences; corrected ones allow for all {comparison.tests} in the table (Holm)"
        )
    return lines


def _said(row: ComparedMetric, change: MetricChange) -> str:
    side = "better" if change.better else "worse"
    if not change.shared:
        return side
    parts = [
        f"{len(units)} {word}"
        + (f" ({', '.join(units[:EXAMPLES])}{', …' if len(units) > EXAMPLES else ''})" if units else "")
        for word, units in (("gained", change.gained), ("lost", change.lost))
    ]
    return f"{side}; of {change.shared} questions {', '.join(parts)}"
