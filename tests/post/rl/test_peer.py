"""GRPO against TRL: advantages, loss and gradients on the same episodes, through models with equal weights and on bare
numbers. Ratios are far from 1, so that both sides of the clip are at work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from ingot.envs.episode import Episode
from ingot.model.transformer import Transformer
from ingot.post.algorithms.grpo import Grpo
from ingot.post.policy import sequence_logprobs
from ingot.post.rl.config import RlConfig
from ingot.post.rl.source import RlSource
from ingot.post.scorer import Scorer
from ingot.tokens.batch import TokenSequence
from ingot.tokens.tokenizer import Tokenizer
from ingot.train.losses.policy_gradient import PolicyGradient, ReferenceDivergence
from ingot.train.losses.surrogates import Clip
from ingot.train.losses.terms import LossTerm, Scored
from ingot.train.parallel.pipeline import make_passes
from ingot.train.passes import Objective
from ingot.workspace.stage import StageFolder
from tests.post.making import (
    CONTEXT,
    SUMS,
    engine_of,
    episode,
    nudged,
    one_step,
    random_tokens,
    tiny_model,
    with_logprobs,
)
from tests.post.peers import give_weights, gradient_difference, grpo_trainer, llama

REWARDS = [1.0, 0.0, 0.25, 0.0, 1.0, 1.0, 0.0, 1.0]
GROUP = 4
TURNS = [
    (6,),
    (1,),
    (5, 4, 3),
    (9,),
    (2, 7, 8),
    (14,),
    (3,),
    (4, 1, 4),
]  # an answer; or a call, a tool's reply, an answer
LOW, HIGH = 0.2, 0.28


def make_episodes(size: int) -> list[Episode]:
    generator = torch.Generator().manual_seed(7)
    made = []
    for index, (turns, reward) in enumerate(zip(TURNS, REWARDS, strict=True)):
        nodes = [("prompt", random_tokens(4 + 3 * (index // GROUP), size, generator))]
        for turn, length in enumerate(turns):
            nodes.append(("tool" if turn % 2 else "assistant", random_tokens(length, size, generator)))
        made.append(episode(nodes, reward))
    return made


class Prepared(RlSource):
    """The stage's own source, on episodes that were made elsewhere."""

    def __init__(
        self, model: Transformer, reference: Transformer, config: RlConfig, folder: StageFolder, made: list[Episode]
    ) -> None:
        super().__init__(model, config, folder)
        engine_of(self).sample = lambda *_: made  # type: ignore[method-assign]
        if self.scores.frozen is not None:
            passes = make_passes(reference, Objective(()), self.scores.device, self.scores.dtype)
            self.scores.frozen = Scorer(passes, self.processes, config.sequence_length)


def score_with_trl(trainer: Any, made: Sequence[Episode]) -> Any:
    """What TRL makes of the episodes: padded tokens, masks, the sampler's log-probabilities, advantages."""
    answers = [[token for node in each.nodes[1:] for token in node.tokens] for each in made]
    masks = [[int(node.sampled) for node in each.nodes[1:] for _ in node.tokens] for each in made]
    prompts = [each.nodes[0].tokens for each in made]
    trainer._generate = lambda _: (prompts, answers, masks, [""] * len(made), None, {}, None, None)
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = 1
    return trainer._generate_and_score_completions([{"prompt": ""} for _ in made])


@pytest.mark.parametrize(
    ("scale", "beta", "temperature"), [("none", 0.0, 1.0), ("group", 0.3, 1.0), ("none", 0.3, 0.7)]
)
def test_the_step_equals_trl(
    tokenizer: Tokenizer,
    make_folder: Callable[[str], StageFolder],
    tmp_path: Path,
    scale: str,
    beta: float,
    temperature: float,
) -> None:
    """Sampler, policy and reference are three models; a tool's reply inside an answer is not scored."""
    sampler = tiny_model(tokenizer)
    policy, reference = nudged(sampler, 0.03, seed=1), nudged(sampler, 0.05, seed=2)
    made = make_episodes(tokenizer.vocabulary_size)
    peer = llama(sampler)
    options = {"num_generations": GROUP, "scale_rewards": scale, "beta": beta, "temperature": temperature}
    trainer = grpo_trainer(
        peer, llama(reference), tokenizer, tmp_path, REWARDS, epsilon=LOW, epsilon_high=HIGH, **options
    )
    inputs = score_with_trl(trainer, made)
    give_weights(peer, policy)
    loss = trainer.compute_loss(trainer.model, inputs)
    loss.backward()

    grpo = Grpo(clip_low=LOW, clip_high=HIGH, divide_by_std=scale == "group", reference_weight=beta)
    config = RlConfig(
        steps=1,
        sequence_length=CONTEXT,
        micro_batch_tokens=40,
        tasks=SUMS,
        prompts_per_step=len(made) // GROUP,
        group=GROUP,
        temperature=temperature,
        algorithm=grpo,
        device="cpu",
        precision="float32",
    )
    logprobs = sequence_logprobs(sampler, [TokenSequence(each.tokens()) for each in made], CONTEXT, temperature)
    made = [with_logprobs(*pair) for pair in zip(made, logprobs, strict=True)]
    source = Prepared(policy, reference, config, make_folder("ours"), made)
    terms: list[LossTerm] = [PolicyGradient(Clip(LOW, HIGH)), ReferenceDivergence(beta)]
    step = one_step(policy, terms, source, make_folder("ours"), temperature=temperature)

    advantages = grpo.answer_advantages(REWARDS, GROUP)
    assert advantages == pytest.approx(inputs["advantages"].tolist(), abs=1e-6)
    assert step.metrics["loss"] == pytest.approx(loss.item(), abs=2e-6)
    assert gradient_difference(policy, step.gradients, peer) < 1e-5
    theirs = trainer._metrics["train"]
    assert min(theirs["clip_ratio/low_mean"][0], theirs["clip_ratio/high_mean"][0]) > 0.05
    assert step.metrics["clip_share"] == pytest.approx(theirs["clip_ratio/region_mean"][0])
    if beta:
        assert step.metrics["reference_divergence"] == pytest.approx(theirs["kl"][0], rel=1e-5)


def test_the_formula_equals_trl_on_bare_numbers(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Log-probabilities in float64 instead of a model: value and gradient with respect to every token."""
    beta = 0.1
    model = tiny_model(tokenizer)
    trainer = grpo_trainer(
        llama(model),
        llama(model),
        tokenizer,
        tmp_path,
        REWARDS,
        num_generations=GROUP,
        scale_rewards="group",
        beta=beta,
        epsilon=LOW,
        epsilon_high=HIGH,
    )
    inputs = score_with_trl(trainer, make_episodes(tokenizer.vocabulary_size))
    mask = inputs["completion_mask"] * inputs["tool_mask"] > 0
    generator = torch.Generator().manual_seed(3)
    base = torch.rand(mask.shape, generator=generator, dtype=torch.float64).neg() * 4
    noise = [torch.empty(mask.shape, dtype=torch.float64).normal_(0, 0.5, generator=generator) for _ in range(2)]
    policy = base.clone().requires_grad_()
    inputs |= {"old_per_token_logps": base + noise[0], "ref_per_token_logps": base + noise[1]}
    inputs["advantages"] = inputs["advantages"].double()
    trainer._get_per_token_logps_and_entropies = lambda *_, **__: (policy, torch.zeros_like(base), None)
    expected = trainer.compute_loss(trainer.model, inputs)
    (expected_gradient,) = torch.autograd.grad(expected, policy)

    streams = {
        "response_mask": mask[mask].double(),
        "advantage": inputs["advantages"][:, None].expand(mask.shape)[mask],
        "sampled_logprob": inputs["old_per_token_logps"][mask],
        "reference_logprob": inputs["ref_per_token_logps"][mask],
    }
    scored = Scored(policy[mask], streams)
    loss = torch.zeros((), dtype=torch.float64)
    terms: list[LossTerm] = [PolicyGradient(Clip(LOW, HIGH)), ReferenceDivergence(beta)]
    for term in terms:
        loss = loss + term.coefficient * term.numerator(scored)[0] / term.denominator(streams)
    (gradient,) = torch.autograd.grad(loss, policy)
    assert trainer._metrics["train"]["clip_ratio/low_mean"][0] > 0.1
    assert trainer._metrics["train"]["clip_ratio/high_mean"][0] > 0.1
    assert loss.item() == pytest.approx(expected.item(), rel=1e-12)
    assert (gradient - expected_gradient).abs().max() < 1e-14
