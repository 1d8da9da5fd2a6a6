"""Every form of the mask against the definition written out with loops."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ingot.kernels.attention.attend_paged import visible_past
from ingot.kernels.attention.attention_options import AttentionOptions
from ingot.model.context import Context
from ingot.model.document_spans import PADDING, DocumentSpan, document_spans
from ingot.model.mixers.attend_flex import block_mask
from ingot.model.mixers.mask import Mask

NUMBERS = st.integers(PADDING, 2)
MASKS = st.builds(Mask, st.none() | st.integers(1, 9), st.none() | st.integers(1, 9))


@st.composite
def document_rows(draw: st.DrawFn) -> Tensor:
    """Any numbering: documents in any order, padding anywhere, the same number again later in a row."""
    length = draw(st.integers(1, 8))
    rows = draw(st.lists(st.lists(NUMBERS, min_size=length, max_size=length), min_size=1, max_size=4))
    return torch.tensor(rows)


def context(documents: Tensor) -> Context:
    return Context(torch.zeros_like(documents), documents)


def runs(numbers: list[int]) -> list[tuple[int, int]]:
    """Start and end of every run of equal numbers."""
    starts = [place for place in range(len(numbers)) if place == 0 or numbers[place] != numbers[place - 1]]
    return list(zip(starts, [*starts[1:], len(numbers)], strict=True))


def visible(numbers: list[int], mask: Mask) -> list[list[bool]]:
    """The definition: earlier tokens of the same document, inside the window, in the same chunk of the document."""
    start = {place: first for first, end in runs(numbers) for place in range(first, end)}
    return [
        [
            key <= query
            and start[key] == start[query]
            and (mask.window is None or query - key < mask.window)
            and (mask.chunk is None or (key - start[key]) // mask.chunk == (query - start[query]) // mask.chunk)
            for key in range(len(numbers))
        ]
        for query in range(len(numbers))
    ]


@given(document_rows())
def test_spans_are_the_runs_of_equal_numbers(documents: Tensor) -> None:
    length = documents.shape[1]
    expected = [
        DocumentSpan(row * length + start, row * length + end)
        for row, numbers in enumerate(documents.tolist())
        for start, end in runs(numbers)
        if numbers[start] != PADDING
    ]
    assert document_spans(documents) == expected


def test_a_document_does_not_go_on_in_the_next_row() -> None:
    assert document_spans(torch.tensor([[0, 1], [1, 1]])) == [
        DocumentSpan(0, 1),
        DocumentSpan(1, 2),
        DocumentSpan(2, 4),
    ]


@given(document_rows(), MASKS)
def test_dense_is_the_definition(documents: Tensor, mask: Mask) -> None:
    expected = [visible(numbers, mask) for numbers in documents.tolist()]
    assert mask.dense(context(documents))[:, 0].tolist() == expected
    whole = Context(torch.zeros_like(documents))  # without numbers a row is one document
    assert mask.dense(whole)[0, 0].tolist() == visible([0] * documents.shape[1], mask)


@given(document_rows(), MASKS)
def test_pieces_are_documents_cut_into_chunks(documents: Tensor, mask: Mask) -> None:
    """Inside the pieces, causality and the window alone give the definition, and no token of a document is left out."""
    length, seen = documents.shape[1], torch.zeros(documents.numel(), documents.numel(), dtype=torch.bool)
    for piece in mask.pieces(context(documents)):
        own = slice(piece.start, piece.end)
        seen[own, own] = torch.tensor(visible([0] * (piece.end - piece.start), Mask(mask.window)))
    for row, numbers in enumerate(documents.tolist()):
        expected = torch.tensor(visible(numbers, mask)) & (documents[row] != PADDING)[:, None]
        own = slice(row * length, (row + 1) * length)
        assert torch.equal(seen[own, own], expected)


@given(st.integers(1, 12), MASKS, st.integers(0, 6))
def test_the_past_is_the_row_of_the_definition_at_that_position(length: int, mask: Mask, skipped: int) -> None:
    first = min(skipped, length - 1)
    options = AttentionOptions(1.0, mask.window, mask.chunk)
    past = visible_past(torch.arange(first, length)[None], torch.arange(length)[None], options)
    assert past[0, 0].tolist() == visible([0] * length, mask)[first:]


def test_a_rule_that_hides_nothing_is_left_out() -> None:
    assert Mask.within(10, 10, 11) == Mask()
    assert Mask.within(10, 9, 9) == Mask(9, 9)


@pytest.mark.parametrize("mask", [Mask(), Mask(window=100), Mask(window=300), Mask(chunk=256), Mask(200, 500)])
@pytest.mark.parametrize("length", [1, 128, 129, 700])
def test_flex_blocks_cover_exactly_what_is_visible(mask: Mask, length: int) -> None:
    """Blocks that are skipped hold nothing visible; blocks called whole hold nothing hidden."""
    cuts = torch.tensor([[130, 300, 500, 650], [1, 127, 256, 512]])
    documents = (torch.arange(length) >= cuts[:, :, None]).sum(dim=1)
    dense = mask.dense(context(documents))[:, 0]
    blocks = block_mask(mask.first(context(documents)), torch.arange(length), length)
    count = -(-length // 128)
    for row in range(2):
        for query in range(count):
            partial = blocks.kv_indices[row, 0, query, : blocks.kv_num_blocks[row, 0, query]].tolist()
            whole = blocks.full_kv_indices[row, 0, query, : blocks.full_kv_num_blocks[row, 0, query]].tolist()
            assert not set(partial) & set(whole)
            for key in range(count):
                area = dense[row, query * 128 : (query + 1) * 128, key * 128 : (key + 1) * 128]
                assert (key in whole) == bool(area.all() and key < query), (row, query, key)
                assert (key in partial or key in whole) == bool(area.any()), (row, query, key)
