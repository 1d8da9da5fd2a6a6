"""A loss that is planned before the pass against the same terms applied after it: every value and every gradient."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from ingot.model.config import ModelConfig
from ingot.model.record import Record
from ingot.model.transformer import Transformer
from ingot.tokens import metadata
from ingot.tokens.batch import Batch
from ingot.tokens.metadata import with_metadata
from ingot.train.losses import fused_head
from ingot.train.losses.policy_gradient import PolicyGradient, ReferenceDivergence
from ingot.train.losses.preference import Preference
from ingot.train.losses.score import StepTerms, has_known_factors, score
from ingot.train.losses.terms import CrossEntropy, LossTerm, MultiTokenPrediction, ZLoss
from ingot.train.passes import Objective, Sums
from tests.model.tiny import VOCABULARY, config, random_model
from tests.train.losses.test_language import documents, packed

ALL: tuple[LossTerm, ...] = (
    CrossEntropy(coefficient=0.9),
    ZLoss(coefficient=0.02),
    MultiTokenPrediction(coefficient=0.3),
)


def model_with_everything(**changes: object) -> Transformer:
    """Logits scaled and capped, and two steps ahead."""
    parts = {"multi_token": {"steps": 2, "block": "layer0", "weight": 0.3}, "logit_scale": 0.7, "logit_softcap": 9.0}
    return random_model(ModelConfig.model_validate(config().model_dump() | parts | changes), scale=0.2).double()


def one_pass(
    model: Transformer, terms: tuple[LossTerm, ...], batch: Batch, planned: bool
) -> tuple[dict[str, Tensor], list[Tensor]]:
    """Everything that a pass logs, and its gradients."""
    objective = Objective(terms)
    denominators = {
        term.name: 1.5 * term.denominator(batch.streams) for term in terms
    }  # as of a step with more batches
    step = StepTerms(terms, denominators) if planned else None
    scored = score(model, batch, wants=objective.wants, step=step)
    assert (scored.loss is not None) == planned
    sums = Sums()
    loss = objective.loss(scored, Record(), batch, denominators, torch.tensor(1.0), sums)
    gradients = torch.autograd.grad(loss, list(model.parameters()), materialize_grads=True)
    return sums.parts, list(gradients)


@pytest.mark.parametrize(
    "terms", [ALL, ALL[:1], ALL[1:2], ALL[1:], ALL[::2]], ids=lambda terms: "+".join(t.name for t in terms)
)
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("placed", [False, True])
def test_planned_is_unplanned(
    terms: tuple[LossTerm, ...], tied: bool, placed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fused_head, "CHUNK_LOGITS_CPU", 4 * VOCABULARY)
    monkeypatch.setattr(metadata, "SCORED", 5)
    monkeypatch.setattr(metadata, "MOST", 1.0)
    model, batch = model_with_everything(tied_embeddings=tied), packed(documents())
    expected, exact = one_pass(model, terms, batch, planned=False)
    given = with_metadata(batch) if placed else batch
    assert not placed or (given.metadata is not None and given.metadata.scored is not None)
    found, gradients = one_pass(model, terms, given, planned=True)
    assert found.keys() == expected.keys() == {"loss", *(term.name for term in terms)}
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-12, atol=1e-12)
    for one, other in zip(gradients, exact, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12 * max(1.0, float(other.abs().max())))


def test_two_terms_of_one_kind_add_up() -> None:
    model, batch = model_with_everything(), packed(documents())
    pair = (CrossEntropy(coefficient=0.25), dataclasses.replace(CrossEntropy(coefficient=0.5), name="again"))
    _, gradients = one_pass(model, pair, batch, planned=True)
    _, exact = one_pass(model, (CrossEntropy(coefficient=0.75),), batch, planned=False)
    for one, other in zip(gradients, exact, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12 * max(1.0, float(other.abs().max())))


@pytest.mark.parametrize("term", [PolicyGradient(), ReferenceDivergence(coefficient=0.1), Preference()])
def test_what_depends_on_the_log_probabilities_cannot_be_planned(term: LossTerm) -> None:
    assert has_known_factors(ALL, 1.0)
    assert not has_known_factors(ALL, 0.7)
    assert not has_known_factors((*ALL, term), 1.0)
