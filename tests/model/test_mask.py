"""Spans and dense masks against the definition written out with loops."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ingot.model import mask
from ingot.model.mask import PADDING, Span

NUMBERS = st.integers(PADDING, 2)


@st.composite
def document_rows(draw: st.DrawFn) -> torch.Tensor:
    """Any numbering: documents in any order, padding anywhere, the same number again later in a row."""
    length = draw(st.integers(1, 8))
    rows = draw(st.lists(st.lists(NUMBERS, min_size=length, max_size=length), min_size=1, max_size=4))
    return torch.tensor(rows)


def spans_by_loop(documents: list[list[int]]) -> list[Span]:
    spans = []
    for row, numbers in enumerate(documents):
        start = 0
        for place in range(1, len(numbers) + 1):
            if place == len(numbers) or numbers[place] != numbers[start]:
                if numbers[start] != PADDING:
                    spans.append(Span(row * len(numbers) + start, row * len(numbers) + place))
                start = place
    return spans


@settings(max_examples=200, deadline=None)
@given(document_rows())
def test_spans_are_the_runs_of_equal_numbers(documents: torch.Tensor) -> None:
    assert mask.document_spans(documents) == spans_by_loop(documents.tolist())


def test_a_document_does_not_go_on_in_the_next_row() -> None:
    assert mask.document_spans(torch.tensor([[0, 1], [1, 1]])) == [Span(0, 1), Span(1, 2), Span(2, 4)]


@settings(max_examples=100, deadline=None)
@given(document_rows(), st.none() | st.integers(1, 9))
def test_dense_is_the_definition(documents: torch.Tensor, window: int | None) -> None:
    rows, length = documents.shape
    numbers = documents.tolist()
    expected = [
        [
            [
                key <= query and (window is None or query - key < window) and numbers[row][query] == numbers[row][key]
                for key in range(length)
            ]
            for query in range(length)
        ]
        for row in range(rows)
    ]
    assert mask.dense(length, window, documents, torch.device("cpu"))[:, 0].tolist() == expected
    one = mask.dense(length, window, None, torch.device("cpu"))
    assert torch.equal(one, mask.dense(length, window, torch.zeros(1, length), torch.device("cpu")))
