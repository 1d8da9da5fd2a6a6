"""Curves: what downsampling must keep, against brute force."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot.report.curves import MOST_POINTS, Point, bucket_means, curves, downsample

from .run_files import TRAINED, rows_of

Values = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=400)


@given(Values, st.integers(4, 60))
def test_extremes_and_ends_survive(values: list[float], most: int) -> None:
    points: list[Point] = [(index, None, value) for index, value in enumerate(values)]
    kept = downsample(points, most)
    assert len(kept) <= max(most, min(len(points), most))
    assert kept == sorted(kept) and set(kept) <= set(points)
    assert kept[0] == points[0] and kept[-1] == points[-1]
    assert min(value for _, _, value in kept) == min(values)
    assert max(value for _, _, value in kept) == max(values)


def test_every_spike_survives() -> None:
    """Three one-step spikes among 20,000 steps: a stride would lose them."""
    rng = random.Random(0)
    rows: list[dict[str, Any]] = [{"step": step, "loss": 2 + rng.random() * 0.01} for step in range(20_000)]
    for step, value in ((33, 9.0), (10_001, -1.0), (19_998, 30.0)):
        rows[step]["loss"] = value
    curve = curves(rows)["loss"]
    found = dict(zip(curve["step"], curve["value"], strict=True))
    assert (found[33], found[10_001], found[19_998]) == (9.0, -1.0, 30.0)
    assert len(curve["step"]) <= MOST_POINTS
    assert curve["count"] == 20_000


def test_means_are_not_biased_by_spikes() -> None:
    """The smoothed line is drawn from bucket means: their weighted mean is the mean of all points."""
    points: list[Point] = [(step, step * 10.0, 1000.0 if step % 100 == 50 else 1.0) for step in range(1200)]
    means = bucket_means(points)
    assert len(means) <= MOST_POINTS / 2
    expected = sum(value for _, _, value in points) / len(points)
    assert sum(value for _, _, value in means) / len(means) == pytest.approx(expected, rel=0.01)
    extremes = [value for _, _, value in downsample(points)]
    assert sum(extremes) / len(extremes) > 1.5 * expected  # what smoothing the kept extremes would have shown


def test_short_curves_are_exact() -> None:
    rows = [
        {"step": 10, "loss": 1.25, "tokens": 80},
        {"step": 20, "loss": 1.0, "tokens": 160},
        {"step": 20, "validation": 3.0},
    ]
    assert curves(rows) == {
        "loss": {"step": [10, 20], "tokens": [80, 160], "value": [1.25, 1], "count": 2},
        "validation": {"step": [20], "tokens": [160], "value": [3], "count": 1},
    }


def test_values_that_are_not_finite_are_listed_by_step() -> None:
    rows: list[dict[str, Any]] = [
        {"step": 1, "loss": 2.5},
        {"step": 2, "loss": math.nan},
        {"step": 3, "loss": math.inf},
    ]
    assert curves(rows)["loss"] == {"step": [1], "value": [2.5], "count": 3, "not_finite": [2, 3]}


def test_texts_flags_and_rows_without_step_are_no_curves() -> None:
    assert (
        curves([{"step": 1, "phase": "warm", "ok": True, "none": None}, {"loss": 2.0}, {"step": "x", "loss": 2.0}])
        == {}
    )


def test_large_steps_are_not_rounded() -> None:
    assert curves([{"step": 123_456_789, "tokens": 987_654_321_123, "loss": 2.0}])["loss"]["step"] == [123_456_789]


def test_curves_of_a_real_run_have_the_numbers_of_its_files(real_run: Path) -> None:
    for stage in TRAINED:
        rows = rows_of(real_run, stage, "metrics.jsonl")
        found = curves(rows)
        names = {name for row in rows for name in row} - {"step", "tokens"}
        assert set(found) == names and "loss" in names
        for name, curve in found.items():
            given = [row for row in rows if name in row]
            assert curve["step"] == [row["step"] for row in given] and curve["count"] == len(given)
            assert curve["value"] == pytest.approx([row[name] for row in given], rel=1e-5)
            assert curve["tokens"] == [row["tokens"] for row in given]
