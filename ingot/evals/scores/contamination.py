"""Scores on questions that leaked into the raw text, and on those that did not: `gsm8k/accuracy/dirty` and `…/clean`.

A curate stage with a step `decontaminate` or `decon` reports which eval rows it found in the documents (and removes those
documents). Where some rows of a suite are among them, each of its metrics is also given for the two parts, with their own errors.
What a model knows by heart shows as a dirty part that is better than the clean one by more than their errors; rows that were
never searched for count as clean.

A row is known by its eval set and its id, as the step names them: folder/file (or the set's own name), and the row's id, else its
number. A suite asks its rows in order, so the k-th unit of a metric (or the k-th cluster, if a row has several) is the k-th row.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from ingot.data.contamination.evals import NAMES
from ingot.evals.bases.file_suite import FileSuite
from ingot.evals.bases.suite import Measured, Subject, Suite
from ingot.evals.scores.scores import Metric

Leaked = Mapping[str, Collection[str]]  # ids of rows, by eval set


def leaked_rows(documents: Path) -> dict[str, set[str]]:
    """What the decontaminate steps of a curate stage found, by eval set; `documents` is its artifact."""
    found: dict[str, set[str]] = {}
    for path in sorted(documents.glob("*.json")):
        try:
            sets = json.loads(path.read_text(encoding="utf-8"))["sets"]
            ids = {name: entry["ids"] for name, entry in sets.items()}
        except (ValueError, KeyError, TypeError, AttributeError):  # the report of another step
            continue
        for name, each in ids.items():
            found.setdefault(name, set()).update(each)
    return found


def with_parts(measured: Measured, suite: Suite, subject: Subject, leaked: Leaked) -> Measured:
    """The same, with the clean and the dirty part of every metric if the suite has rows that leaked."""
    if not leaked or not isinstance(suite, FileSuite):
        return measured
    rows = suite.rows(subject)
    dirty = {number for number, (place, row) in enumerate(rows) if is_leaked(place, row, leaked, suite.suite)}
    if not dirty:
        return measured
    parts = [part for metric in measured.metrics for part in parts_of(metric, len(rows), dirty)]
    return replace(measured, metrics=[*measured.metrics, *parts])


def parts_of(metric: Metric, rows: int, dirty: Collection[int]) -> list[Metric]:
    """A metric over the clean and over the dirty rows; nothing if its units are not those of the rows."""
    numbers = row_numbers(metric, rows)
    if numbers is None:
        return []
    found = []
    for name, wanted in (("clean", False), ("dirty", True)):
        units = {unit for unit, number in numbers.items() if (number in dirty) == wanted}
        if units:
            part = metric.part(units)
            found.append(replace(part, name=f"{metric.name}/{name}", label=f"{metric.label} ({name})"))
    return found


def row_numbers(metric: Metric, rows: int) -> dict[str, int] | None:
    """The row of each unit; None if units are something else than rows (a metric of a part, of pairs, of single calls)."""
    units = list(metric.units)
    if len(units) == rows:
        return {unit: number for number, unit in enumerate(units)}
    clusters = list(dict.fromkeys(metric.clusters.get(unit, unit) for unit in units))
    if len(clusters) == rows:
        number_of = {cluster: number for number, cluster in enumerate(clusters)}
        return {unit: number_of[metric.clusters.get(unit, unit)] for unit in units}
    return None


def is_leaked(place: str, row: Mapping[str, Any], leaked: Leaked, suite: str) -> bool:
    """Whether the row at `place` (a file, and the number of a row) is among those that were found."""
    file, number = split_place(place)
    own = next((row[name] for name in NAMES if row.get(name) is not None), number)
    return any(str(own) in leaked.get(name, ()) for name in set_names(file, row, suite))


def split_place(place: str) -> tuple[str, str]:
    """The file and the number of `FILE:12` or `FILE: row 12`."""
    file, _, number = place.rpartition(":")
    return file, number.removeprefix(" row").strip()


def set_names(file: str, row: Mapping[str, Any], suite: str) -> Sequence[str]:
    """The names that the row's eval set may have in a report."""
    pure = PurePosixPath(file)
    key = row.get("eval_key")
    return [*([key] if isinstance(key, str) else []), f"{pure.parent.name}/{pure.name.partition('.')[0]}", suite]
