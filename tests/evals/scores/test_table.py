"""The table of what each stage did to each number."""

from __future__ import annotations

import pytest

from ingot.evals.scores.scores import Metric, metric_of_units
from ingot.evals.scores.table import table


def metric(name: str, *values: float, higher: bool = True) -> dict[str, Metric]:
    units = {f"task-{number}": value for number, value in enumerate(values)}
    return {name: metric_of_units(name, units, name.title(), higher)}


def test_values_changes_and_directions() -> None:
    scores = {
        "pretrain": metric("bits", 2.0, 2.2, higher=False),
        "sft": {**metric("accuracy", 0, 0, 1, 1), **metric("bits", 2.1, 2.3, higher=False)},
        "prefer": {},
        "rl": metric("accuracy", 1, 0, 1, 1),
    }
    bits, accuracy = table(scores)
    assert (bits.metric, accuracy.metric) == ("bits", "accuracy")
    assert bits.cells["prefer"] is None and accuracy.cells["pretrain"] is None
    first, second = bits.cells["pretrain"], bits.cells["sft"]
    assert first is not None and first.change is None and first.text() == "2.100 ±0.100"
    assert second is not None and second.change is not None
    assert second.change.value == pytest.approx(0.1) and second.change.standard_error == pytest.approx(0, abs=1e-12)
    assert second.better is False and second.certain
    last = accuracy.cells["rl"]  # against sft: prefer did not measure it
    assert last is not None and last.change is not None
    assert last.change.value == pytest.approx(0.25) and last.change.standard_error == pytest.approx(0.25, abs=1e-3)
    assert last.better is True and not last.certain


def test_no_change_is_neither_better_nor_certain() -> None:
    row = table({"a": metric("accuracy", 1, 1), "b": metric("accuracy", 1, 1)})[0]
    cell = row.cells["b"]
    assert cell is not None and cell.better is None and not cell.certain
