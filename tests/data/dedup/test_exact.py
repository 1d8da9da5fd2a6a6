"""Exact copies of documents: against a dictionary, whichever way the documents are cut into shards."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingot.data.apply import apply
from ingot.data.steps.exact_dedup import ExactDedupStep
from ingot.workspace.errors import DataError
from tests.data.dedup.shards import run


def test_copies_up_to_case_and_space() -> None:
    texts = ["Same text", "same  text\n", "SAME TEXT ", "other", "same text."]
    table = apply(ExactDedupStep(keep="longest"), texts)
    assert table.column("removed_by").to_pylist() == [
        "same text as another document 3 copies",
        None,  # the longest in bytes
        "same text as another document 3 copies",
        None,
        None,
    ]
    assert table.column("_copy_location").to_pylist() == [1, None, 1, None, None]
    assert table.column("copy_count").to_pylist() == [3, 3, 3, 1, 1]
    assert apply(ExactDedupStep(compare="exact"), texts).column("removed_by").null_count == 5


DOCUMENTS: list[dict[str, Any]] = [
    {"id": "a", "text": "one two", "date": "2023-05-01", "quality": 0.2},
    {"id": "b", "text": "One  two", "date": "2024-05-01T10:00:00Z", "quality": None},
    {"id": "c", "text": "ONE TWO\n\n\n", "date": None, "quality": 0.1},
    {"id": "d", "text": "one two", "date": "2024", "quality": 0.9},
]


@pytest.mark.parametrize(("keep", "stays"), [("first", "a"), ("longest", "c"), ("newest", "b"), ("best", "d")])
@pytest.mark.parametrize("cuts", [(), (1, 3), (0, 2, 2, 4)])
def test_keep_rule_names_the_copy_that_stays(keep: Any, stays: str, cuts: tuple[int, ...]) -> None:
    removed = run(ExactDedupStep(keep=keep), DOCUMENTS, cuts).removed()
    assert removed == {name: stays for name in "abcd" if name != stays}


def test_order_decides_nothing_unless_asked_to() -> None:
    """Equal preferences: the same id stays in either order; with `first` it is the first."""
    rows = [{"id": name, "text": "same"} for name in ("p", "q", "r", "s")]
    forward, backward = run(ExactDedupStep(keep="longest"), rows), run(ExactDedupStep(keep="longest"), rows[::-1])
    assert set(forward.removed().values()) == set(backward.removed().values())
    assert set(run(ExactDedupStep(), rows[::-1]).removed().values()) == {"s"}


def test_columns_that_cannot_be_compared_are_named() -> None:
    with pytest.raises(DataError, match="holds no date: 'yesterday'"):
        run(ExactDedupStep(keep="newest"), [{"text": "x", "date": "yesterday"}])
    with pytest.raises(DataError, match="column `date` holds string, not numbers"):
        run(ExactDedupStep(keep="best", keep_column="date"), [{"text": "x", "date": "2024-01-01"}])
    with pytest.raises(ValueError, match="keeps the first copy"):
        ExactDedupStep(scope="line", keep="newest")


@settings(max_examples=25)
@given(st.lists(st.text(st.sampled_from("xyzX "), max_size=3), min_size=1, max_size=20), st.data())
def test_groups_are_those_of_a_dictionary_for_any_shards(texts: list[str], data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(texts)), max_size=3)))
    first: dict[str, str] = {}
    expected = {}
    for number, text in enumerate(texts):
        kept = first.setdefault(" ".join(text.lower().split()), str(number))
        if kept != str(number):
            expected[str(number)] = kept
    whole, split = run(ExactDedupStep(), texts), run(ExactDedupStep(), texts, cuts)
    assert whole.removed() == split.removed() == expected
    names = ("id", "copy_cluster", "copy_count")
    assert [[row[n] for n in names] for row in whole.rows] == [[row[n] for n in names] for row in split.rows]
