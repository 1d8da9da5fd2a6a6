"""Where documents begin and which positions are scored, against loops over every position; and scoring with the two lists."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ingot.tokens import metadata
from ingot.tokens.batch import PADDING_DOCUMENT, Batch, BatchMetadata
from ingot.tokens.metadata import (
    BLOCK,
    DOCUMENTS,
    MOST,
    SCORED,
    Sizes,
    document_starts,
    scored_positions,
    with_metadata,
)
from ingot.train.batches import padding_like
from ingot.train.losses.score import StepTerms, score
from ingot.train.losses.terms import CrossEntropy, MultiTokenPrediction, Wants, ZLoss
from tests.model.tiny import VOCABULARY, config, random_model
from tests.train.losses.test_ways import model_with_everything


@st.composite
def batches(draw: st.DrawFn, most: int = 40) -> Batch:
    """Rows of documents of any lengths, padding at their ends, and streams that are mostly zero, mostly not, or mixed."""
    rows, length = draw(st.integers(1, 4)), draw(st.integers(1, most))
    documents = []
    for _ in range(rows):
        numbers: list[int] = []
        while len(numbers) < length:
            size = draw(st.integers(1, length - len(numbers)))
            padding = draw(st.integers(0, 5)) == 0
            numbers += [PADDING_DOCUMENT if padding else (numbers[-1] + 1 if numbers else 0)] * size
            if padding:
                numbers += [PADDING_DOCUMENT] * (length - len(numbers))
        documents.append(numbers)
    numbered = torch.tensor(documents)
    share, seed = draw(st.sampled_from([0.0, 0.1, 0.7, 1.0])), draw(st.integers(0, 999))
    generator = torch.Generator().manual_seed(seed)
    streams = {
        name: (torch.rand(rows, length, generator=generator) < share).float() * (numbered != PADDING_DOCUMENT)
        for name in ("weight", "advantage")
    }
    tokens = torch.randint(VOCABULARY, (rows, length), generator=generator)
    return Batch(tokens, tokens.flip(1), torch.arange(length).expand(rows, -1), numbered, streams)


@given(batches())
def test_documents_begin_where_the_number_changes(batch: Batch) -> None:
    rows, length = batch.documents.shape
    starts, longest = document_starts(batch.documents)
    flat, total = batch.documents.flatten().tolist(), rows * length
    found = starts[starts < total].tolist()
    assert starts.dtype == torch.int32 and starts.tolist() == found + [total] * (len(starts) - len(found))
    assert found == sorted(set(found)) and found[0] == 0
    numbers = [place for place in range(total) if place % length == 0 or flat[place] != flat[place - 1]]
    assert set(numbers) <= set(found)
    assert all(flat[place] == PADDING_DOCUMENT for place in set(found) - set(numbers)), "only padding is cut"
    sizes = torch.tensor([*found, total]).diff().tolist()
    real = [size for place, size in zip(found, sizes, strict=True) if flat[place] != PADDING_DOCUMENT]
    assert max(sizes) <= longest
    assert longest == length or (longest.bit_count() == 1 and longest < max(2 * max(real, default=1), BLOCK + 1))
    assert len(starts) % DOCUMENTS == 0
    assert 1 <= len(starts) - len(found) <= max(DOCUMENTS, len(found) // 8), "at most an eighth more"


def test_an_empty_row_is_not_the_longest_document() -> None:
    """FlashAttention starts a program for each document and block of the longest one."""
    documents = torch.full((2, 1024), PADDING_DOCUMENT)
    documents[0] = torch.arange(1024) // 100
    starts, longest = document_starts(documents)
    assert longest == 128
    assert starts[:19].tolist() == [*range(0, 1024, 100), *range(1024, 2048, 128)]


@given(batches())
def test_every_scored_position_is_there_once(batch: Batch) -> None:
    found = scored_positions(batch, 16)
    flat = {name: stream.flatten().tolist() for name, stream in batch.streams.items()}
    total = batch.tokens.numel()
    expected = [place for place in range(total) if any(stream[place] for stream in flat.values())]
    if found is None:
        assert len(expected) > MOST * total or -(-len(expected) // 16) * 16 >= total
        return
    listed = found.tolist()
    assert len(listed) % 16 == 0 and len(listed) - len(expected) < 16
    assert listed[: len(expected)] == expected
    padding = listed[len(expected) :]
    assert all(stream[place] == 0 for place in padding for stream in flat.values()), "padding carries no weight"


@given(batches())
def test_whole_rows(batch: Batch) -> None:
    placed = with_metadata(batch).metadata
    assert placed is not None
    kinds = [set(row) for row in batch.documents.tolist()]
    assert placed.whole == all(len(kind) == 1 and PADDING_DOCUMENT not in kind for kind in kinds)


def test_sizes_seen_by_compiled_code_are_few() -> None:
    """Of 200 random batches of 8 × 1024 tokens with a tenth scored, all have one length of the list."""
    generator = torch.Generator().manual_seed(0)
    lengths = set()
    for _ in range(200):
        weight = (torch.rand(8, 1024, generator=generator) < 0.1).float()
        zeros = torch.zeros(8, 1024, dtype=torch.int64)
        found = scored_positions(Batch(zeros, zeros, zeros, zeros, {"weight": weight}))
        lengths.add(-1 if found is None else len(found))
    assert lengths == {SCORED}


def few_scored() -> Batch:
    """Two rows of packed documents with padding; a fifth of the tokens has a weight."""
    generator = torch.Generator().manual_seed(4)
    documents = torch.tensor([[0] * 9 + [1] * 11 + [2] * 4, [0] * 3 + [1] * 14 + [-1] * 7])
    positions = torch.tensor([[*range(9), *range(11), *range(4)], [*range(3), *range(14), *[0] * 7]])
    tokens, targets = (torch.randint(VOCABULARY, (2, 24), generator=generator) for _ in range(2))
    weight = torch.rand(2, 24, generator=generator).double() * (torch.rand(2, 24, generator=generator) < 0.2)
    weight = weight * (documents != PADDING_DOCUMENT)
    return Batch(tokens, targets, positions, documents, {"weight": weight}, sources=torch.tensor([1, 0]))


@pytest.mark.parametrize("planned", [False, True])
def test_scoring_with_metadata_is_scoring_without(planned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss of all terms and the gradients of all parameters; what is logged by source."""
    monkeypatch.setattr(metadata, "SCORED", 7)
    model, batch = model_with_everything(), few_scored()
    terms = (CrossEntropy(), ZLoss(coefficient=0.1), MultiTokenPrediction())
    denominators = {term.name: term.denominator(batch.streams) for term in terms}
    losses, gradients, by_row = [], [], []
    placed = with_metadata(batch)
    scored_count = int((batch.streams["weight"] != 0).sum())
    assert placed.metadata is not None and placed.metadata.scored is not None
    assert scored_count < len(placed.metadata.scored) < batch.tokens.numel()
    for given_batch in (batch, placed):
        step = StepTerms(terms, denominators) if planned else None
        scored = score(model, given_batch, wants=Wants(log_normalisers=True, ahead=True), step=step)
        loss = scored.loss
        if loss is None:
            parts = [term.coefficient * term.numerator(scored)[0] / denominators[term.name] for term in terms]
            loss = torch.stack(parts).sum()
        losses.append(loss.detach())
        gradients.append(torch.autograd.grad(loss, list(model.parameters()), materialize_grads=True))
        assert scored.rows is not None
        by_row.append(
            torch.zeros(2).double().index_add(0, scored.rows, scored.logprobs.detach() * scored.streams["weight"])
        )
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-13, atol=0)
    torch.testing.assert_close(by_row[1], by_row[0], rtol=1e-13, atol=0)
    for one, other in zip(gradients[1], gradients[0], strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-13 * max(1.0, float(other.abs().max())))


def test_a_row_of_nothing_but_padding() -> None:
    """What a rank gets that has run out of batches: no loss, no gradient, nothing that is not finite."""
    batch = with_metadata(padding_like(few_scored()))
    assert batch.metadata is not None and not batch.metadata.whole
    model = random_model(config()).double()
    scored = score(model, batch, step=StepTerms((CrossEntropy(),), {"cross_entropy": torch.tensor(5.0)}))
    assert scored.loss is not None and float(scored.loss.detach()) == 0
    gradients = torch.autograd.grad(scored.loss, list(model.parameters()), materialize_grads=True)
    assert all(not gradient.any() for gradient in gradients)


def test_whole_rows_are_scored_like_numbered_ones() -> None:
    """Where every row is one document the model is not given their numbers."""
    model, batch = random_model(config()).double(), few_scored()
    whole = dataclasses.replace(
        batch,
        positions=torch.arange(24).expand(2, -1),
        documents=torch.tensor([[0], [5]]).expand(2, 24).contiguous(),
    )
    placed = with_metadata(whole)
    assert placed.metadata is not None and placed.metadata.whole
    losses, gradients = [], []
    for given_batch in (whole, placed):
        scored = score(model, given_batch)
        loss = -(scored.streams["weight"] * scored.logprobs).sum()
        losses.append(loss.detach())
        gradients.append(torch.autograd.grad(loss, list(model.parameters())))
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-13, atol=0)
    for one, other in zip(gradients[1], gradients[0], strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12 * max(1.0, float(other.abs().max())))


@given(st.lists(batches(), min_size=1, max_size=4))
def test_micro_batches_of_a_step_get_one_size(listed: list[Batch]) -> None:
    """Nothing is lost: the documents stay, every scored position is listed, and what was added carries no weight."""
    before = [with_metadata(batch, varies=True) for batch in listed]
    after = Sizes().same(before)
    assert len({(len(metadata_of(each).starts), metadata_of(each).longest) for each in after}) == 1
    assert len({None if (at := metadata_of(each).scored) is None else len(at) for each in after}) == 1
    for batch, one, other in zip(listed, before, after, strict=True):
        total, mine, larger = batch.tokens.numel(), metadata_of(one), metadata_of(other)
        assert larger.starts[larger.starts < total].tolist() == mine.starts[mine.starts < total].tolist()
        assert larger.starts[-1] == total and larger.longest >= mine.longest and larger.whole == mine.whole
        if larger.scored is not None and mine.scored is not None:
            count = len(mine.scored)
            assert larger.scored[:count].tolist() == mine.scored.tolist()
            assert not any(stream.flatten()[larger.scored[count:]].any() for stream in batch.streams.values())


@given(st.lists(batches(), min_size=2, max_size=5))
def test_a_later_step_has_at_least_the_sizes_of_those_before(listed: list[Batch]) -> None:
    """Of as many positions: there is a graph for it already."""
    sizes, largest = Sizes(), dict[int, tuple[int, int]]()
    for batch in listed:
        (after,) = sizes.same([with_metadata(batch, varies=True)])
        found, total = metadata_of(after), batch.tokens.numel()
        here = len(found.starts), found.longest
        assert all(now >= before for now, before in zip(here, largest.get(total, (0, 0)), strict=True))
        largest[total] = here


def metadata_of(batch: Batch) -> BatchMetadata:
    assert batch.metadata is not None
    return batch.metadata
