"""Scored tokens: log-probabilities against log_softmax of all logits, whatever the size of a chunk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from ingot.model.transformer import Transformer
from ingot.tokens.batch import Batch, TokenSequence
from ingot.tokens.metadata import is_scored
from ingot.tokens.packing import make_batch
from ingot.train.losses import fused_head
from ingot.train.losses import score as score_module
from ingot.train.losses.score import score
from ingot.train.losses.terms import NOTHING_MORE, Wants
from tests.model.tiny import VOCABULARY, mixed_config, random_model, random_tokens


@pytest.fixture
def batch() -> Batch:
    """Five sequences; two streams that score different tokens."""
    texts = []
    for seed, length in enumerate((9, 4, 12, 2, 7)):
        tokens = random_tokens(length, seed=seed).tolist()
        weight = [float((place + seed) % 3 == 0) for place in range(length)]
        bonus = [-0.5 if place == length - 1 else 0.0 for place in range(length)]
        texts.append(TokenSequence(tokens, {"weight": weight, "bonus": bonus}))
    return make_batch(texts, 14)


def gradients(model: Transformer, values: Tensor) -> list[Tensor]:
    weights = torch.linspace(0.5, 2.0, len(values))
    return list(torch.autograd.grad((values * weights).sum(), list(model.parameters())))


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_scores_are_those_of_all_logits(batch: Batch, temperature: float) -> None:
    model = random_model(mixed_config())
    scored = score(model, batch, temperature)
    wanted = (batch.streams["weight"] != 0) | (batch.streams["bonus"] != 0)
    assert torch.equal(is_scored(batch), wanted)
    assert 0 < int(wanted.sum()) < batch.token_count
    logits = model(batch.tokens, batch.positions, batch.documents) / temperature
    table = logits.log_softmax(-1).gather(-1, batch.targets[..., None])[..., 0]
    torch.testing.assert_close(scored.logprobs, table[wanted], rtol=0, atol=2e-6)
    for name, stream in batch.streams.items():
        assert torch.equal(scored.streams[name], stream[wanted])
    for one, other in zip(gradients(model, scored.logprobs), gradients(model, table[wanted]), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5 * float(other.abs().max()))


@pytest.mark.parametrize("wants", [NOTHING_MORE, Wants(log_normalisers=True)], ids=["alone", "with log Z"])
@pytest.mark.parametrize("tokens", [1, 3, 5, 1000])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("softcap", [None, 4.0])
def test_chunks_change_nothing(
    batch: Batch,
    tokens: int,
    temperature: float,
    softcap: float | None,
    wants: Wants,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Log-probabilities alone are fused with their gradient (not with a temperature behind a softcap); others recomputed."""
    model = random_model(mixed_config(logit_softcap=softcap, logit_scale=0.6)).double()
    whole = score(model, batch, temperature, wants=wants)
    expected = gradients(model, whole.logprobs)
    seen: list[int] = []

    def count_rows(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def counted(rows: Tensor, *given: Any) -> Tensor:
            seen.append(len(rows))
            return function(rows, *given)

        return counted

    monkeypatch.setattr(model, "head", count_rows(model.head))
    for name in ("summarise", "spread"):
        monkeypatch.setattr(fused_head, name, count_rows(getattr(fused_head, name)))
    monkeypatch.setattr(score_module, "CHUNK_LOGITS", tokens * VOCABULARY)
    monkeypatch.setattr(fused_head, "CHUNK_LOGITS_CPU", tokens * VOCABULARY)
    chunked = score(model, batch, temperature, wants=wants)
    assert max(seen) <= max(tokens, 1) and sum(seen) == len(whole.logprobs)
    torch.testing.assert_close(chunked.logprobs, whole.logprobs, rtol=0, atol=1e-13)
    found = gradients(model, chunked.logprobs)
    assert max(seen) <= tokens, "the backward pass makes the logits again chunk by chunk"
    assert sum(seen) == len(whole.logprobs) * (1 if tokens >= len(whole.logprobs) else 2)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12 * float(other.abs().max()))


def test_a_vocabulary_larger_than_a_chunk_goes_token_by_token(batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_model(mixed_config())
    whole = score(model, batch)
    monkeypatch.setattr(score_module, "CHUNK_LOGITS", 1)
    monkeypatch.setattr(fused_head, "CHUNK_LOGITS_CPU", 1)
    torch.testing.assert_close(score(model, batch).logprobs, whole.logprobs, rtol=0, atol=2e-6)


def test_a_batch_without_scored_tokens(batch: Batch) -> None:
    model = random_model(mixed_config())
    silent = Batch(
        batch.tokens,
        batch.targets,
        batch.positions,
        batch.documents,
        {name: torch.zeros_like(stream) for name, stream in batch.streams.items()},
    )
    scored = score(model, silent)
    assert scored.logprobs.shape == (0,)
    assert all(not gradient.any() for gradient in gradients(model, scored.logprobs))
