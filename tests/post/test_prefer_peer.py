"""DPO against TRL: loss and gradients on the same pairs, through two models with equal weights and on bare numbers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from ingot.post.data.pairs.pair import PairSource, pair_sequences
from ingot.tokens.tokenizer import Tokenizer
from ingot.train.losses.preference import Preference
from ingot.train.losses.terms import CrossEntropy, Scored
from ingot.workspace.stage import StageFolder
from tests.post.making import CONTEXT, nudged, one_step, tiny_model
from tests.post.peers import dpo_trainer, gradient_difference, llama
from tests.post.preference_peers import make_pairs, padded

BETA = 0.7


@pytest.mark.parametrize(
    ("normalised", "anchor", "loss_types"),
    [(False, 0.0, ["sigmoid"]), (True, 0.0, ["sigmoid_norm"]), (True, 0.2, ["sigmoid_norm", "sft"])],
)
def test_the_step_equals_trl(
    tokenizer: Tokenizer,
    make_folder: Callable[[str], StageFolder],
    tmp_path: Path,
    normalised: bool,
    anchor: float,
    loss_types: list[str],
) -> None:
    """Packed rows in several micro-batches here, one padded batch there; the policy has moved from the reference."""
    reference = tiny_model(tokenizer)
    policy = nudged(reference, 0.03, seed=1)
    pairs = make_pairs(tokenizer.vocabulary_size)
    peer = llama(policy)
    weights = [1.0, anchor][: len(loss_types)]
    trainer = dpo_trainer(
        peer, llama(reference), tokenizer, tmp_path, beta=BETA, loss_type=loss_types, loss_weights=weights
    )
    loss = trainer.compute_loss(trainer.model, padded(pairs))
    loss.backward()

    groups = pair_sequences(pairs, reference, CONTEXT)
    source = PairSource(groups, len(groups), CONTEXT, 80, seed=0)
    assert len(source.batches(0)[0]) > 1
    terms = [Preference(BETA, normalised), CrossEntropy(coefficient=anchor)]
    step = one_step(policy, terms, source, make_folder("ours"))
    theirs = trainer._metrics["train"]
    assert step.metrics["loss"] == pytest.approx(loss.item(), abs=5e-6)
    assert gradient_difference(policy, step.gradients, peer) < 1e-5
    if not normalised:  # TRL reports rewards that are not divided by the length
        assert step.metrics["preference_accuracy"] == pytest.approx(theirs["rewards/accuracies"][0])
        assert step.metrics["margin"] == pytest.approx(theirs["rewards/margins"][0], abs=2e-5)
        assert step.metrics["chosen_reward"] == pytest.approx(theirs["rewards/chosen"][0], abs=2e-5)
        assert step.metrics["rejected_reward"] == pytest.approx(theirs["rewards/rejected"][0], abs=2e-5)


@pytest.mark.parametrize("micro_batch_tokens", [60, 10_000])
def test_a_pair_that_comes_twice_in_a_step_counts_twice(
    tokenizer: Tokenizer, make_folder: Callable[[str], StageFolder], tmp_path: Path, micro_batch_tokens: int
) -> None:
    """Three pairs, five a step: the pool's second pass begins inside the step."""
    reference = tiny_model(tokenizer)
    policy = nudged(reference, 0.03, seed=1)
    pairs = make_pairs(tokenizer.vocabulary_size)[:3]
    groups = pair_sequences(pairs, reference, CONTEXT)
    source = PairSource(groups, 5, CONTEXT, micro_batch_tokens, seed=0)
    drawn = [source.pool[index] for index in range(5)]
    assert len(set(drawn)) < len(drawn)
    peer = llama(policy)
    trainer = dpo_trainer(peer, llama(reference), tokenizer, tmp_path, beta=BETA, loss_type="sigmoid")
    loss = trainer.compute_loss(trainer.model, padded([pairs[index] for index in drawn]))
    loss.backward()
    step = one_step(policy, [Preference(beta=BETA, length_normalised=False)], source, make_folder("ours"))
    assert step.metrics["loss"] == pytest.approx(loss.item(), abs=5e-6)
    assert gradient_difference(policy, step.gradients, peer) < 1e-5


@pytest.mark.parametrize(("normalised", "loss_type"), [(False, "sigmoid"), (True, "sigmoid_norm")])
def test_the_formula_equals_trl_on_bare_numbers(
    tokenizer: Tokenizer, tmp_path: Path, normalised: bool, loss_type: str
) -> None:
    """Log-probabilities in float64 instead of a model: value and gradient with respect to every token."""
    pairs = make_pairs(tokenizer.vocabulary_size)
    inputs = padded(pairs)
    generator = torch.Generator().manual_seed(3)
    mask = inputs["completion_mask"][:, 1:].bool()  # at the place where a token is predicted
    policy, reference = (
        torch.rand(mask.shape, generator=generator, dtype=torch.float64).neg().mul(4) * mask for _ in range(2)
    )
    policy.requires_grad_()
    model = tiny_model(tokenizer)
    trainer = dpo_trainer(llama(model), llama(model), tokenizer, tmp_path, beta=BETA, loss_type=loss_type)
    trainer.precompute_ref_logps = True
    inputs["ref_chosen_logps"], inputs["ref_rejected_logps"] = reference.sum(dim=1).chunk(2)
    nothing = torch.zeros(mask.shape)
    outputs = SimpleNamespace(log_probs=policy * mask, entropy=nothing, mean_logits=nothing, is_top1=nothing.bool())
    expected = trainer.compute_loss(lambda **_: outputs, inputs)
    (expected_gradient,) = torch.autograd.grad(expected, policy)

    count = len(pairs)
    numbers = torch.arange(1, 2 * count + 1, dtype=torch.float64)[:, None].expand(mask.shape)
    streams = {
        "chosen": torch.where(numbers <= count, numbers, 0.0)[mask],
        "rejected": torch.where(numbers > count, numbers - count, 0.0)[mask],
        "reference_logprob": reference[mask],
    }
    term = Preference(beta=BETA, length_normalised=normalised)
    numerator, _ = term.numerator(Scored(policy[mask], streams))
    loss = numerator / term.denominator(streams)
    (gradient,) = torch.autograd.grad(loss, policy)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-12)
    assert (gradient - expected_gradient).abs().max() < 1e-14
