"""Phases that end at a share, after tokens, or when told to: against a walk from row to row."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingot.tokens.mixture import Apportionment
from ingot.tokens.phases import ConstantBatch, PhaseSchedule
from ingot.workspace.errors import ArtifactError, RecipeError
from tests.tokens.sources import Phase

WEIGHTS = ({"a": 3.0, "b": 1.0}, {"b": 1.0}, {"a": 1.0, "b": 2.0, "c": 4.0})


def make(*ends: dict[str, Any], rows: int = 5, steps: int = 20) -> PhaseSchedule:
    phases = [Phase(weights=weights, **end) for weights, end in zip(WEIGHTS, ends, strict=False)]
    return PhaseSchedule(phases, ConstantBatch(rows), sequence_length=8, total_steps=steps)


def walk(ends: list[int | None], count: int) -> list[tuple[str, int]]:
    """Row after row: the phase's own schedule from its own beginning, and a count of each source."""
    seen: Counter[str] = Counter()
    found = []
    phase, begun = 0, 0
    for row in range(count):
        while (end := ends[phase]) is not None and row >= end:
            phase, begun = phase + 1, max(begun, end)
        name = Apportionment(WEIGHTS[phase]).rows(row - begun, 1)[0][0]
        found.append((name, seen[name]))
        seen[name] += 1
    return found


CASES = [
    ([{"until": 0.4}, {"until": 0.7}, {"until": 1}], [40, 70, None]),
    ([{"until_tokens": 8 * 33}, {"until_tokens": 8 * 34 + 1}, {}], [33, 35, None]),
    ([{"until": 0.25}, {"until_tokens": 8 * 61}, {"until": 1.0}], [25, 61, None]),
    ([{}, {"until": 0.7}, {"until": 1.0}], [70, 70, None]),
    ([{}, {}, {"until": 1.0}], [None, None, None]),
    ([{"until": 1.0}], [None]),
]


@pytest.mark.parametrize(("ends", "expected"), CASES)
def test_rows_are_those_of_the_walk(ends: list[dict[str, Any]], expected: list[int | None]) -> None:
    schedule = make(*ends)
    wanted = walk(expected, 130)
    assert schedule.rows(0, 130) == wanted, "also beyond the run's 100 rows"
    for first in range(0, 130, 7):
        assert schedule.rows(first, 9) == walk(expected, first + 9)[first:], "batches that straddle a change"
    for rows in (0, 1, 33, 40, 70, 100):
        counts = Counter(name for name, _ in wanted[:rows])
        assert schedule.counts(rows) == {name: counts[name] for name in schedule.names}


@settings(max_examples=50)
@given(
    first=st.integers(0, 60), second=st.integers(0, 60), ends=st.sampled_from([[{}, {}, {}], [{"until": 0.8}, {}, {}]])
)
def test_next_phase(first: int, second: int, ends: list[dict[str, Any]]) -> None:
    schedule = make(*ends)
    expected: list[int | None] = [first, first + second, None]
    schedule.next_phase(first)
    if second:  # the second phase has to begin before it can end
        schedule.next_phase(first + second)
    else:
        expected = [first, None, None]
    wanted = walk(expected, 130)
    assert schedule.rows(0, 130) == wanted
    fresh = make(*ends)
    fresh.restore(json.loads(json.dumps(schedule.state())))
    assert fresh.rows(0, 130) == wanted, "a resumed run"
    assert fresh.state() == schedule.state()


def test_the_past_does_not_change_when_a_phase_ends() -> None:
    schedule = make({}, {}, {})
    before = schedule.rows(0, 57)
    schedule.next_phase(57)
    assert schedule.rows(0, 57) == before
    assert {name for name, _ in schedule.rows(57, 30)} == {"b"}
    assert [schedule.phase(row) for row in (0, 56, 57, 1000)] == [0, 0, 1, 1]


def test_a_phase_that_is_late_shortens_the_next_one() -> None:
    """The next phase ends where it was planned to."""
    schedule = make({}, {"until": 0.7}, {"until": 1.0})
    schedule.next_phase(60)
    assert schedule.rows(0, 130) == walk([60, 70, None], 130)


def test_mistakes_are_named() -> None:
    with pytest.raises(RecipeError, match=r"one after the other; they end at the rows \[70, 40\]"):
        make({"until": 0.7}, {"until": 0.4}, {})
    with pytest.raises(RecipeError, match="the phases end at row 50, the run at 100"):
        make({"until": 0.2}, {"until": 0.5})
    with pytest.raises(RecipeError, match="the phases end at row 99, the run at 100"):
        make({"until_tokens": 8 * 99})
    schedule = make({"until": 0.5}, {"until": 1.0})
    for row in (51, 1000, -1):
        with pytest.raises(ValueError, match="last phase"):
            schedule.next_phase(row)
    for damaged in ({}, {"switches": 3}, {"switches": [[1]]}, {"switches": [["x", 1]]}):
        with pytest.raises(ArtifactError, match="order of data is damaged"):
            schedule.restore(damaged)
    with pytest.raises(ArtifactError, match=r"ended phases \[1\]; this recipe has 2"):
        schedule.restore({"switches": [[1, 10]]})
