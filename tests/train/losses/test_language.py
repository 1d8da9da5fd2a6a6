"""Multi-token prediction and z-loss as terms of the loss, against their formulas computed token by token in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ingot.model.config import ModelConfig
from ingot.model.context import Context
from ingot.model.multi_token import MultiTokenModule
from ingot.model.transformer import Transformer
from ingot.tokens.batch import Batch, TokenSequence
from ingot.tokens.packing import make_batch
from ingot.train.config import LanguageConfig
from ingot.train.losses.score import score
from ingot.train.losses.terms import MultiTokenPrediction, UntemperedCrossEntropy, Wants, ZLoss, language_terms
from tests.model.tiny import VOCABULARY, config, random_model


def model_with_steps(steps: int, shared: bool = False) -> Transformer:
    shape = ModelConfig.model_validate(
        config().model_dump() | {"multi_token": {"steps": steps, "block": "layer0", "shared": shared, "weight": 0.7}}
    )
    return random_model(shape, scale=0.2).double()


def documents(seed: int = 0) -> list[TokenSequence]:
    """Documents of uneven length with uneven weights, some zero."""
    generator = torch.Generator().manual_seed(seed)
    made = []
    for length in (9, 2, 14, 5, 1 + 3):
        tokens = torch.randint(0, VOCABULARY, (length,), generator=generator).tolist()
        weights = torch.randint(0, 3, (length,), generator=generator).float().tolist()
        made.append(TokenSequence(tokens, {"weight": weights}))
    return made


def packed(sequences: list[TokenSequence], length: int = 16) -> Batch:
    batch = make_batch(sequences, length)
    assert batch.tokens.shape[0] > 1 and int(batch.documents.max()) > 0  # several rows, several documents in a row
    streams = {name: stream.double() for name, stream in batch.streams.items()}
    return Batch(batch.tokens, batch.targets, batch.positions, batch.documents, streams)


def ahead_by_hand(model: Transformer, sequences: list[TokenSequence]) -> Tensor:
    """Each document alone: step k reads token t + k and the state of step k − 1, and predicts token t + k + 1."""
    assert model.multi_token is not None and model.config.multi_token is not None
    steps, total = model.config.multi_token.steps, torch.zeros((), dtype=torch.float64)
    for sequence in sequences:
        tokens, weights = torch.tensor(sequence.tokens), torch.tensor(sequence.streams["weight"]).double()
        state = model.hidden(tokens[None])
        for step in range(1, steps + 1):
            count = len(tokens) - step - 1  # positions whose target lies in the document
            if count < 1:
                break
            part = model.multi_token.parts[0 if model.config.multi_token.shared else step - 1]
            assert isinstance(part, MultiTokenModule)
            known = len(tokens) - step
            joined = torch.cat(
                (part.embedding_norm(model.embed(tokens[None, step:])), part.state_norm(state[:, :known])), dim=-1
            )
            positions = torch.arange(step, len(tokens))[None]
            state = part.norm(part.block(part.input(joined), Context(positions)))
            logprobs = model.head(state[:, :count]).log_softmax(dim=-1)[0]
            targets = tokens[step + 1 :]
            picked = logprobs.gather(1, targets[:, None])[:, 0]
            total = total - (weights[step + 1 :] * picked).sum() / steps
    return total


@pytest.mark.parametrize(("steps", "shared"), [(1, False), (3, False), (3, True)])
def test_multi_token_prediction(steps: int, shared: bool) -> None:
    model, sequences = model_with_steps(steps, shared), documents()
    term = MultiTokenPrediction()
    batch = packed(sequences)
    numerator, _ = term.numerator(score(model, batch, wants=Wants.of([term])))
    expected = ahead_by_hand(model, sequences)
    torch.testing.assert_close(numerator, expected, rtol=1e-10, atol=1e-10)
    ours = torch.autograd.grad(numerator, list(model.parameters()), allow_unused=True)
    theirs = torch.autograd.grad(expected, list(model.parameters()), allow_unused=True)
    for (name, _), mine, other in zip(model.named_parameters(), ours, theirs, strict=True):
        assert (mine is None) == (other is None), name
        if mine is not None and other is not None:
            torch.testing.assert_close(mine, other, rtol=1e-8, atol=1e-10, msg=name)


def test_z_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = random_model(config(), scale=0.4).double(), packed(documents())
    term = ZLoss()
    numerator, _ = term.numerator(score(model, batch, wants=Wants.of([term])))
    logits = model(batch.tokens, batch.positions, batch.documents)
    weight = batch.streams["weight"]
    normaliser = torch.log(torch.exp(logits).sum(dim=-1))
    torch.testing.assert_close(numerator, (weight * normaliser**2).sum(), rtol=1e-12, atol=1e-12)
    monkeypatch.setattr("ingot.train.losses.score.CHUNK_LOGITS", 3 * VOCABULARY)  # in chunks that are recomputed
    chunked, _ = term.numerator(score(model, batch, wants=Wants.of([term])))
    torch.testing.assert_close(chunked, numerator, rtol=1e-12, atol=1e-12)
    grads = [torch.autograd.grad(each, model.embedding.weight)[0] for each in (numerator, chunked)]
    torch.testing.assert_close(*grads, rtol=1e-10, atol=1e-12)


def test_untempered_cross_entropy() -> None:
    """Other terms read log-probabilities at a temperature of 0.5; this one is the cross-entropy at 1, with its gradient."""
    model, batch = random_model(config(), scale=0.4).double(), packed(documents())
    term, weight = UntemperedCrossEntropy(), batch.streams["weight"]
    scored = score(model, batch, temperature=0.5, wants=Wants.of([term]))
    loss = term.numerator(scored)[0] / term.denominator(scored.streams)
    logits = model(batch.tokens, batch.positions, batch.documents)
    by_token = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch.targets.flatten(), reduction="none")
    expected = (weight.flatten() * by_token).sum() / weight.sum()
    torch.testing.assert_close(loss, expected, rtol=1e-6, atol=0)  # measured in float32
    grads = [torch.autograd.grad(each, model.embedding.weight)[0] for each in (loss, expected)]
    torch.testing.assert_close(*grads, rtol=1e-4, atol=1e-7)


def test_what_no_term_asks_for_is_not_computed() -> None:
    scored = score(model_with_steps(1), packed(documents()))
    assert (scored.log_normalisers, scored.ahead, scored.heads, scored.measured) == (None, (), {}, {})
    term = MultiTokenPrediction()
    assert Wants.of([term]) == Wants(ahead=True) and Wants.of([ZLoss()]) == Wants(log_normalisers=True)
    assert Wants.of([UntemperedCrossEntropy()]).measures and Wants.of([]) == Wants()


def test_which_terms_a_model_gets() -> None:
    options = LanguageConfig(steps=1, sequence_length=8, z_loss=1e-5)
    named = {term.name: term.coefficient for term in language_terms(model_with_steps(1), options)}
    assert named == {"cross_entropy": 1.0, "z_loss": 1e-5, "multi_token": 0.7}
    assert [term.name for term in language_terms(random_model(config()), options)] == ["cross_entropy", "z_loss"]
