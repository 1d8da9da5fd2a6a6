"""What a call of a stage gives: where its result lies, what was measured, and the recipe that does the same.

A result is a path, that of its stage's folder: `ingot.load(result)`, `ingot.export_model(result, …)` and the next stage take it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ingot.recipe.record import RunningRecord, StageResult, headline
from ingot.workspace.metrics import MetricsLog
from ingot.workspace.progress import format_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ingot.evals.scores.scores import Metric
    from ingot.recipe.recipe import Recipe


class MetricRows(list[dict[str, Any]]):
    """The rows of metrics.jsonl, a step each."""

    @property
    def columns(self) -> dict[str, list[Any]]:
        """The same by name, None where a row has no such value: what `pandas.DataFrame` takes."""
        names = dict.fromkeys(name for row in self for name in row)
        return {name: [row.get(name) for row in self] for name in names}


@dataclass(frozen=True, repr=False)
class Result(os.PathLike[str]):
    """The result of a stage."""

    stage: StageResult
    recipe: Recipe
    written: str  # the recipe as YAML
    run_folder: Path

    def __fspath__(self) -> str:
        return str(self.stage.folder)

    @property
    def folder(self) -> Path:
        """The stage's folder."""
        return self.stage.folder

    @property
    def finished(self) -> bool:
        """Whether it was run: not after `dry_run`, unless an earlier call had finished it."""
        return self.stage.status in ("done", "reused")

    @property
    def summary(self) -> Mapping[str, Any]:
        """What the stage says of itself, in a few numbers."""
        return self.stage.summary

    @property
    def checkpoint(self) -> Path | None:
        """The folder of the model that it made, if it makes one."""
        path = self.folder / "checkpoint"
        return path if self.finished and path.is_dir() else None

    @property
    def metrics(self) -> MetricRows:
        """What was measured step by step."""
        return MetricRows(MetricsLog(self.folder / "metrics.jsonl").read())

    @property
    def scores(self) -> dict[str, Metric]:
        """The metrics of an eval by name, each with `estimate.value` and `estimate.standard_error`."""
        from ingot.evals.scores.scores import load_scores

        return load_scores(self.folder)

    def report(self) -> Path:
        """Write the page of this result, one HTML file: its path."""
        from ingot.report.build import build

        RunningRecord(self.run_folder, self.recipe, [self.stage]).write()  # another call may have been this run's last
        return build(self.run_folder, None)

    def as_recipe(self) -> str:
        """The recipe that does the same: `ingot run FILE` finds this result and reuses it."""
        return self.written

    def __repr__(self) -> str:
        head = f"{self.stage.name}: {self.stage.status}"
        if not (self.folder / "scores").is_dir():
            shown = headline(self.summary)
            return head + (f" · {shown}" if shown else "") + f"\n{self.folder}"
        found = {name: each.estimate for name, each in self.scores.items()}
        lines = [
            f"{name}: {each.value:.4g} ± {each.standard_error:.2g} ({each.count:,})" for name, each in found.items()
        ]
        return "\n".join([head, *lines, str(self.folder)])

    def _repr_html_(self) -> str:
        from ingot.python.page import curve, table_of_numbers, table_of_scores

        seconds, first = self.stage.seconds, ", at first" if self.stage.status == "reused" else ""
        took = "" if seconds is None else f"{first} in {format_seconds(seconds)}"
        title = f"<b>{escape(self.stage.name)}</b> {escape(self.stage.status)}{took}"
        parts = [f"<p>{title}<br/><code>{escape(str(self.folder))}</code></p>"]
        if (self.folder / "scores").is_dir():
            parts.append(table_of_scores(self.scores))
        elif metrics := self.metrics:
            parts += [curve(metrics), table_of_numbers(f"after {metrics[-1]['step'] + 1} steps", metrics[-1])]
        elif self.summary:
            parts.append(table_of_numbers("result", self.summary))
        return "<div>" + "".join(parts) + "</div>"
