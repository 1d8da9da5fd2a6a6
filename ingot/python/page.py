"""Draws a result for a notebook: what the stage says of itself, the last metrics or the scores, and a curve as SVG.

Everything is inline and needs no script, so that a saved notebook shows it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import TYPE_CHECKING, Any

from ingot.report.curves import curves
from ingot.workspace.progress import format_number, format_seconds

if TYPE_CHECKING:
    from ingot.python.result import MetricRows, Result

DRAWN = ("reward", "loss")  # the curve that is worth a look: the first of these that a stage has
SHOWN = 12  # metrics of the last step
WIDTH, HEIGHT, MARGIN = 480.0, 140.0, 4.0


def show(result: Result) -> str:
    """The result as HTML."""
    stage = result.stage
    title = f"<b>{escape(stage.name)}</b> {escape(stage.status)}"
    if stage.seconds is not None:
        title += f" in {format_seconds(stage.seconds)}"
    parts = [f"<p>{title}<br/><code>{escape(str(result.folder))}</code></p>"]
    if (result.folder / "scores").is_dir():
        rows = [
            (name, format_number(each.estimate.value), f"± {format_number(each.estimate.standard_error)}")
            for name, each in result.scores.items()
        ]
        parts.append(_table(("metric", "value", "standard error"), rows))
    elif metrics := result.metrics:
        parts.append(_curve(metrics))
        parts.append(_table((f"after {metrics[-1]['step'] + 1} steps", ""), _last(metrics[-1])))
    elif result.summary:
        parts.append(_table(("result", ""), _last(result.summary)))
    return "<div>" + "".join(parts) + "</div>"


def _last(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The first numbers of a row, those that are drawn before the others; parts (`reward/brevity`) are in the report."""
    named = {name: value for name, value in row.items() if isinstance(value, int | float) and name != "step"}
    order = sorted(named, key=lambda name: (DRAWN.index(name) if name in DRAWN else len(DRAWN), "/" in name))
    return [(name, format_number(named[name])) for name in order[:SHOWN]]


def _table(head: Iterable[str], rows: Iterable[tuple[str, ...]]) -> str:
    cells = "".join(f"<th>{escape(each)}</th>" for each in head)
    lines = "".join("<tr>" + "".join(f"<td>{escape(each)}</td>" for each in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{cells}</tr></thead><tbody>{lines}</tbody></table>"


def _curve(metrics: MetricRows) -> str:
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
