"""Draws the parts of a result for a notebook: tables of scores and of the last metrics, and a curve as SVG.

Everything is inline and needs no script, so that a saved notebook shows it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

from ingot.evals.scores.scores import Metric
from ingot.report.curves import curves
from ingot.workspace.progress import format_number

DRAWN = ("reward", "loss")  # the curve that is worth a look: the first of these that a stage has
SHOWN = 12  # metrics of the last step
WIDTH, HEIGHT, MARGIN = 480.0, 140.0, 4.0


def table_of_scores(scores: Mapping[str, Metric]) -> str:
    """Every metric of an eval with its error."""
    rows = [
        (name, format_number(each.estimate.value), f"± {format_number(each.estimate.standard_error)}")
        for name, each in scores.items()
    ]
    return _table(("metric", "value", "standard error"), rows)


def table_of_numbers(head: str, row: Mapping[str, Any]) -> str:
    """The first numbers of a row of metrics, or of a stage's summary."""
    return _table((head, ""), _last(row))


def _last(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The first numbers of a row, those that are drawn before the others; parts (`reward/brevity`) are in the report."""
    named = {name: value for name, value in row.items() if isinstance(value, int | float) and name != "step"}
    order = sorted(named, key=lambda name: (DRAWN.index(name) if name in DRAWN else len(DRAWN), "/" in name))
    return [(name, format_number(named[name])) for name in order[:SHOWN]]


def _table(head: Iterable[str], rows: Iterable[tuple[str, ...]]) -> str:
    cells = "".join(f"<th>{escape(each)}</th>" for each in head)
    lines = "".join("<tr>" + "".join(f"<td>{escape(each)}</td>" for each in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{cells}</tr></thead><tbody>{lines}</tbody></table>"


def curve(metrics: list[dict[str, Any]]) -> str:
    """A line over the steps, from the lowest to the highest value."""
    found = curves(metrics)
    name = next((name for name in DRAWN if name in found), None)
    if name is None or len(found[name]["step"]) < 2:
        return ""
    steps, values = found[name]["step"], found[name]["value"]
    (left, right), (low, high) = (min(steps), max(steps)), (min(values), max(values))
    across, up = (WIDTH - 2 * MARGIN) / ((right - left) or 1), (HEIGHT - 2 * MARGIN) / ((high - low) or 1)
    points = " ".join(
        f"{MARGIN + (step - left) * across:.1f},{HEIGHT - MARGIN - (value - low) * up:.1f}"
        for step, value in zip(steps, values, strict=True)
    )
    line = f'<polyline fill="none" stroke="currentColor" stroke-width="1.5" points="{points}"/>'
    text = escape(f"{name}: {format_number(values[0])} to {format_number(values[-1])}, steps {left:g} to {right:g}")
    return (
        f'<figure style="margin:0 0 8px"><svg viewBox="0 0 {WIDTH:g} {HEIGHT:g}" width="{WIDTH:g}" role="img" '
        f'aria-label="{text}">{line}</svg><figcaption>{text}</figcaption></figure>'
    )
