"""Every preference loss against TRL's: loss, gradients and what is logged, for one step of the real trainer.

Ours are packed rows in several micro-batches, TRL's one padded batch; the policy has moved from the reference.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from trl import DPOConfig, KTOConfig
from trl.experimental.orpo import ORPOConfig

from ingot.post.algorithm import PREFER, PairAlgorithm
from ingot.post.algorithms.orpo import Orpo
from ingot.post.algorithms.simpo import Simpo
from ingot.post.data.pairs.pair import PairSource, pair_sequences
from ingot.post.data.pairs.unpaired import Rated, UnpairedSource, rated_sequences
from ingot.tokens.batch import TokenSequence
from ingot.tokens.tokenizer import Tokenizer
from ingot.workspace.stage import StageFolder
from tests.post.making import CONTEXT, nudged, one_step, tiny_model
from tests.post.peers import dpo_trainer, gradient_difference, llama
from tests.post.preference_peers import (
    kto_trainer,
    make_pairs,
    orpo_trainer,
    padded,
    padded_halves,
    padded_rated,
    simpo_trainer,
)

MakeFolder = Callable[[str], StageFolder]
MICRO_BATCH = 80  # tokens: several micro-batches


def algorithm(name: str, **options: Any) -> PairAlgorithm:
    return PREFER.read({"algorithm": name, **options})


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (algorithm("ipo", beta=0.3), {"beta": 0.3, "loss_type": "ipo"}),
        (algorithm("apo_zero", beta=0.3), {"beta": 0.3, "loss_type": "apo_zero"}),
        (algorithm("apo_down", beta=0.3), {"beta": 0.3, "loss_type": "apo_down"}),
        (
            algorithm("dpo", beta=0.3, length_normalised=False, anchor=0, label_smoothing=0.2, robust=True),
            {"beta": 0.3, "loss_type": "robust", "label_smoothing": 0.2},
        ),
    ],
    ids=["ipo", "apo_zero", "apo_down", "robust dpo"],
)
def test_losses_with_a_reference(
    tokenizer: Tokenizer, make_folder: MakeFolder, tmp_path: Path, ours: PairAlgorithm, theirs: dict[str, Any]
) -> None:
    reference = tiny_model(tokenizer)
    policy = nudged(reference, 0.03, seed=1)
    pairs, peer = make_pairs(tokenizer.vocabulary_size), llama(policy)
    trainer = dpo_trainer(peer, llama(reference), tokenizer, tmp_path, **theirs)
    loss = trainer.compute_loss(trainer.model, padded(pairs))
    loss.backward()

    groups = pair_sequences(pairs, reference, CONTEXT)
    source = PairSource(groups, len(groups), CONTEXT, MICRO_BATCH, seed=0)
    assert len(source.batches(0)[0]) > 1
    step = one_step(policy, ours.terms(policy, None), source, make_folder("ours"))
    assert step.metrics["loss"] == pytest.approx(loss.item(), rel=1e-5)
    assert gradient_difference(policy, step.gradients, peer) < 1e-5


def test_conservative_dpo(tokenizer: Tokenizer, make_folder: MakeFolder, tmp_path: Path) -> None:
    """TRL's own name for it is gone, but its `aot` on a batch of one pair, where there is nothing to sort, is the same."""
    reference = tiny_model(tokenizer)
    policy = nudged(reference, 0.03, seed=1)
    pairs, peer = make_pairs(tokenizer.vocabulary_size), llama(policy)
    options = {"beta": 0.3, "loss_type": "aot", "label_smoothing": 0.2}
    trainer = dpo_trainer(peer, llama(reference), tokenizer, tmp_path, **options)
    loss = sum(trainer.compute_loss(trainer.model, padded([pair])) for pair in pairs) / len(pairs)
    loss.backward()

    groups = pair_sequences(pairs, reference, CONTEXT)
    ours = algorithm("dpo", beta=0.3, length_normalised=False, anchor=0, label_smoothing=0.2)
    source = PairSource(groups, len(groups), CONTEXT, MICRO_BATCH, seed=0)
    step = one_step(policy, ours.terms(policy, None), source, make_folder("ours"))
    assert step.metrics["loss"] == pytest.approx(loss.item(), rel=1e-5)
    assert gradient_difference(policy, step.gradients, peer) < 1e-5


def test_simpo(tokenizer: Tokenizer, make_folder: MakeFolder, tmp_path: Path) -> None:
    """Without a reference there is no stream of its log-probabilities, and none is asked for."""
    policy = tiny_model(tokenizer)
    pairs, peer = make_pairs(tokenizer.vocabulary_size), llama(policy)
    trainer = simpo_trainer(peer, tokenizer, tmp_path, beta=1.7, simpo_gamma=0.6)
    loss, logged = trainer.get_batch_loss_metrics(trainer.model, padded_halves(pairs))
    loss.backward()

    groups = pair_sequences(pairs, None, CONTEXT)
    assert "reference_logprob" not in groups[0][0].streams
    source = PairSource(groups, len(groups), CONTEXT, MICRO_BATCH, seed=0)
    terms = Simpo(beta=1.7, target_margin=0.6).terms(policy, None)
    step = one_step(policy, terms, source, make_folder("ours"))
    assert step.metrics["loss"] == pytest.approx(loss.item(), rel=1e-5)
    assert gradient_difference(policy, step.gradients, peer) < 1e-5
    assert step.metrics["margin"] == pytest.approx(logged["rewards/margins"], abs=1e-5)
    assert step.metrics["preference_accuracy"] == pytest.approx(logged["rewards/accuracies"])


def test_orpo(tokenizer: Tokenizer, make_folder: MakeFolder, tmp_path: Path) -> None:
    """TRL counts the cross-entropy of the prompt too; with that weight on the prompt's tokens all numbers are equal."""
    policy = tiny_model(tokenizer)
    pairs, peer = make_pairs(tokenizer.vocabulary_size), llama(policy)
    trainer = orpo_trainer(peer, tokenizer, tmp_path, beta=0.4)
    loss, logged = trainer.get_batch_loss_metrics(trainer.model, padded_halves(pairs))
    loss.backward()

    groups = [[_weigh_all(chosen), rejected] for chosen, rejected in pair_sequences(pairs, None, CONTEXT)]
    source = PairSource(groups, len(groups), CONTEXT, MICRO_BATCH, seed=0)
    step = one_step(policy, Orpo(beta=0.4).terms(policy, None), source, make_folder("ours"))
    assert step.metrics["loss"] == pytest.approx(loss.item(), rel=1e-5)
    assert step.metrics["cross_entropy"] == pytest.approx(logged["nll_loss"], rel=1e-5)
    assert step.metrics["preference"] == pytest.approx(-0.4 * logged["log_odds_ratio"], rel=1e-5)
    assert gradient_difference(policy, step.gradients, peer) < 1e-5


def _weigh_all(sequence: TokenSequence) -> TokenSequence:
    return sequence.with_stream("weight", [1.0] * len(sequence.tokens))


@pytest.mark.parametrize("weights", [(1.0, 1.0), (1.3, 0.4)])
def test_kto(tokenizer: Tokenizer, make_folder: MakeFolder, tmp_path: Path, weights: tuple[float, float]) -> None:
    """The reference point is that of the whole step: TRL's one batch has no smaller ones."""
    reference = tiny_model(tokenizer)
    policy = nudged(reference, 0.03, seed=34)  # a point well above the rounding of the sums
    pairs = make_pairs(tokenizer.vocabulary_size)
    answers = [pair.rejected if number % 2 else pair.chosen for number, pair in enumerate(pairs)]
    labels = [True, False, False, True, False]
    peer = llama(policy)
    trainer = kto_trainer(
        peer,
        llama(reference),
        tokenizer,
        tmp_path,
        beta=0.3,
        desirable_weight=weights[0],
        undesirable_weight=weights[1],
    )
    loss = trainer.compute_loss(trainer.model, padded_rated(answers, labels))
    loss.backward()
    (point,) = trainer._metrics["train"]["kl"]
    assert point > 0.1, "a reference point that is cut off at 0 would show less"

    rows = [Rated(answer, good) for answer, good in zip(answers, labels, strict=True)]
    groups = rated_sequences(rows, reference, CONTEXT)
    source = UnpairedSource(groups, len(groups), 40, 40, 0, policy)
    assert len(source.batches(0)[0]) > 1
    ours = algorithm("kto", beta=0.3, desirable_weight=weights[0], undesirable_weight=weights[1])
    step = one_step(policy, ours.terms(policy, None), source, make_folder("ours"))
    assert step.metrics["reference_point"] == pytest.approx(point, rel=1e-5)
    assert step.metrics["loss"] == pytest.approx(loss.item(), rel=1e-5)
    assert gradient_difference(policy, step.gradients, peer) < 1e-5


def test_choosing_a_name_gives_the_published_settings() -> None:
    """TRL's defaults are those of the papers, but for SimPO, whose authors begin with β = 2 and γ/β = 0.5."""
    peers = {"ipo": DPOConfig, "apo_zero": DPOConfig, "apo_down": DPOConfig, "kto": KTOConfig, "orpo": ORPOConfig}
    for name, peer in peers.items():
        theirs = {field.name: field.default for field in dataclasses.fields(peer)}
        for option in ("beta", "desirable_weight", "undesirable_weight"):
            if (ours := getattr(algorithm(name), option, None)) is not None:
                assert ours == theirs[option], (name, option)
    assert (Simpo().beta, Simpo().target_margin / Simpo().beta) == (2, 0.5)
    assert [name for name in PREFER.names() if not algorithm(name).wants_reference] == ["orpo", "simpo"]


def test_options_that_would_do_nothing_are_refused() -> None:
    with pytest.raises(ValidationError, match="give label_smoothing"):
        algorithm("dpo", robust=True)
