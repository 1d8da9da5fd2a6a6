"""Packed documents: the same logits and gradients as each document by itself, and as the dense mask."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor

from ingot.model.config import ModelConfig
from ingot.model.document_spans import PADDING
from ingot.model.mixers.attend import use_backend
from ingot.model.transformer import Transformer
from tests.model.tiny import VOCABULARY, attention, config, mixed_config, random_model, random_tokens

SHAPES = {
    "plain": config(),
    "no positions": config(attention(rope=None)),
    "window": config(attention(window=3)),
    "chunk": config(attention(chunk=4, window=3)),
    "sinks and softcap": config(attention(sinks=True, softcap=2.0, window=5)),
    "mixed": mixed_config(),
}
LENGTHS = (7, 1, 12, 2, 5, 9, 3)
ROWS = (((0, 1), 2), ((2, 3), 0), ((4,), 0), ((5, 6), 4))  # documents of a row, and padding before the last one


@pytest.fixture(params=list(SHAPES.values()), ids=list(SHAPES))
def shape(request: pytest.FixtureRequest) -> ModelConfig:
    chosen: ModelConfig = request.param
    return chosen


def pack(texts: list[Tensor]) -> tuple[Tensor, Tensor, Tensor, list[tuple[int, slice]]]:
    """Tokens, positions, documents [rows, length], and the place of each document; padding is full of tokens."""
    length = max(sum(len(texts[text]) for text in row) + pad for row, pad in ROWS)
    tokens = random_tokens(len(ROWS), length, seed=5)
    positions, documents = torch.full_like(tokens, 3), torch.full_like(tokens, PADDING)
    places: dict[int, tuple[int, slice]] = {}
    for number, (row, pad) in enumerate(ROWS):
        start = 0
        for text in row:
            start += pad if text == row[-1] else 0
            place = slice(start, start + len(texts[text]))
            tokens[number, place] = texts[text]
            positions[number, place] = torch.arange(len(texts[text]))
            documents[number, place] = 7 - text  # any distinct numbers will do
            places[text] = (number, place)
            start = place.stop
    return tokens, positions, documents, [places[text] for text in range(len(texts))]


def gradients(model: Transformer, logits: list[Tensor], weights: list[Tensor]) -> dict[str, Tensor]:
    model.zero_grad()
    sum(((a * b).sum() for a, b in zip(logits, weights, strict=True)), torch.zeros(())).backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters() if parameter.grad is not None}


def assert_close(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-5, atol=1e-5 * float(value.abs().max()), msg=name)


def test_packed_documents_equal_documents_apart(shape: ModelConfig) -> None:
    model = random_model(shape)
    texts = [random_tokens(length, seed=length) for length in LENGTHS]
    weights = [torch.randn(length, VOCABULARY, generator=torch.Generator().manual_seed(length)) for length in LENGTHS]
    tokens, positions, documents, places = pack(texts)
    packed = model(tokens, positions, documents)
    together = [packed[row, place] for row, place in places]
    apart = [model(text[None])[0] for text in texts]
    for one, other in zip(together, apart, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    assert_close(gradients(model, together, weights), gradients(model, apart, weights))


def test_spans_equal_the_dense_mask(shape: ModelConfig) -> None:
    model = random_model(shape)
    rng = random.Random(0)
    for _ in range(5):
        numbers = [sorted(rng.choices(range(4), k=11)) for _ in range(3)]
        documents = torch.tensor(numbers)
        documents[documents == 3] = PADDING
        tokens, real = random_tokens(3, 11), documents != PADDING
        weights = torch.randn(int(real.sum()), VOCABULARY, generator=torch.Generator().manual_seed(1))
        spans = model(tokens, None, documents)[real]
        found = gradients(model, [spans], [weights])
        with use_backend("plain"):
            dense = model(tokens, None, documents)[real]
            expected = gradients(model, [dense], [weights])
        torch.testing.assert_close(spans, dense, rtol=1e-5, atol=1e-5)
        assert_close(found, expected)


def test_padding_changes_nothing_and_stays_finite(shape: ModelConfig) -> None:
    model = random_model(shape)
    tokens, documents = random_tokens(2, 6), torch.zeros(2, 6, dtype=torch.int64)
    documents[0, 4:] = documents[1, :] = PADDING
    first = model(tokens, None, documents)
    other = tokens.clone()
    other[documents == PADDING] = 0
    assert first.isfinite().all()
    assert torch.equal(model(other, None, documents)[0, :4], first[0, :4])


def test_a_token_reaches_exactly_the_later_tokens_of_its_document() -> None:
    """Which logits change when one token changes: the mask, seen from outside."""
    model = random_model(config(attention(), attention()))
    tokens, documents = random_tokens(1, 10), torch.tensor([[0, 0, 0, 1, 1, 1, 1, 2, 2, 2]])
    base = model(tokens, None, documents)[0]
    for place, end in ((1, 3), (4, 7), (7, 10)):
        changed = tokens.clone()
        changed[0, place] = (changed[0, place] + 1) % VOCABULARY
        moved = (model(changed, None, documents)[0] != base).any(dim=-1).nonzero().flatten().tolist()
        assert moved == list(range(place, end))
