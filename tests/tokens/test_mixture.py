"""The schedule of sources against a brute-force sort of due times, and its bound."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot.tokens.mixture import Apportionment
from ingot.workspace.errors import RecipeError

weights = st.dictionaries(
    st.sampled_from("abcdef"), st.one_of(st.integers(1, 50).map(float), st.floats(0.01, 1)), min_size=1
)


def brute_force(shares: dict[str, float], count: int) -> list[tuple[str, int]]:
    """All due times, sorted: Webster's method as defined."""
    due = [
        (Fraction(2 * index + 1) / Fraction(weight), name, index)
        for name, weight in shares.items()
        for index in range(count)
    ]
    return [(name, index) for _, name, index in sorted(due)[:count]]


@given(shares=weights, first=st.integers(0, 60), count=st.integers(0, 60))
def test_equals_the_sorted_due_times(shares: dict[str, float], first: int, count: int) -> None:
    expected = brute_force(shares, first + count)
    schedule = Apportionment(shares)
    assert schedule.rows(first, count) == expected[first:]
    counts = schedule.counts(first)
    assert counts == {name: sum(row[0] == name for row in expected[:first]) for name in shares}


@given(shares=weights, rows=st.one_of(st.integers(0, 200), st.integers(0, 10**12)))
def test_weights_are_kept(shares: dict[str, float], rows: int) -> None:
    counts = Apportionment(shares).counts(rows)
    total = sum(map(Fraction, shares.values()))
    assert sum(counts.values()) == rows
    for name, weight in shares.items():
        share = Fraction(weight) / total
        off = abs(counts[name] - share * rows)
        assert off <= (1 + share * (len(shares) - 2)) / 2
        assert off < 1 or len(shares) > 3


def test_counts_far_into_a_run_are_found_at_once() -> None:
    """Not by serving row after row."""
    assert Apportionment({"a": 1.0, "b": 2.0}).counts(3 * 10**15) == {"a": 10**15, "b": 2 * 10**15}
    assert Apportionment({"a": 1.0, "b": 2.0}).rows(3 * 10**15, 3) == [
        ("b", 2 * 10**15),
        ("a", 10**15),
        ("b", 2 * 10**15 + 1),
    ]


def test_order_of_names_and_zero_weights_do_not_matter() -> None:
    one = Apportionment({"a": 0.2, "b": 0.8, "c": 0.0})
    other = Apportionment({"b": 8 / 10, "a": 2 / 10})
    assert one.rows(0, 100) == other.rows(0, 100)


@pytest.mark.parametrize("shares", [{}, {"a": 0.0}, {"a": -1.0, "b": 2.0}, {"a": float("nan")}, {"a": float("inf")}])
def test_weights_without_meaning(shares: dict[str, float]) -> None:
    with pytest.raises(RecipeError, match="give no shares"):
        Apportionment(shares)
