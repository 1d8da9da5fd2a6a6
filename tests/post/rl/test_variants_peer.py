"""Every variant of the loss against TRL's own code, on bare log-probabilities in float64: value and gradient of every token.

TRL scores answers (ratios of trainer over sampler, advantages) and computes the loss; π, π_old, μ and the reference are four
different sets of numbers, far enough apart that every bound is at work. Answers of several turns have masked tokens in them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from ingot.envs.episode import Episode
from ingot.post.algorithm import RlAlgorithm, Samples
from ingot.post.algorithms.cispo import Cispo
from ingot.post.algorithms.dapo import Dapo
from ingot.post.algorithms.dr_grpo import DrGrpo
from ingot.post.algorithms.grpo import Grpo
from ingot.post.algorithms.grpo_paper import GrpoPaper
from ingot.post.algorithms.gspo import Gspo
from ingot.post.algorithms.rloo import Rloo
from ingot.post.algorithms.sapo import Sapo
from ingot.post.rl.objective import ImportanceConfig, PolicyOptimization
from ingot.tokens.tokenizer import Tokenizer
from ingot.train.losses.terms import Scored
from tests.post.making import episode, tiny_model, with_logprobs
from tests.post.peers import grpo_trainer, llama, rloo_trainer
from tests.post.rl.test_peer import GROUP, REWARDS, make_episodes

LONGEST = 20  # what TRL divides by in dr_grpo
STAGE = SimpleNamespace(updates_per_batch=2, max_new_tokens=LONGEST)


@pytest.fixture(scope="module")
def trainer(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Any:
    model = tiny_model(tokenizer)
    options = {"num_generations": GROUP, "beta": 0.1, "max_completion_length": LONGEST}
    return grpo_trainer(llama(model), llama(model), tokenizer, tmp_path_factory.mktemp("trl"), REWARDS, **options)


class Numbers:
    """Random log-probabilities for the padded answers of some episodes."""

    def __init__(self, made: list[Episode], mask: Tensor, drift: float = 0.4) -> None:
        generator = torch.Generator().manual_seed(3)
        self.mask = mask
        base = torch.rand(mask.shape, generator=generator, dtype=torch.float64).neg() * 4

        def near(size: float) -> Tensor:
            return base + torch.empty(mask.shape, dtype=torch.float64).normal_(0, size, generator=generator)

        self.policy = base.clone().requires_grad_()
        self.old, self.sampled, self.reference = near(drift), near(2 * drift), near(drift)
        self.made = [
            with_logprobs(each, [0.0] * len(each.nodes[0].tokens) + row[: each.length - len(each.nodes[0].tokens)])
            for each, row in zip(made, self.sampled.tolist(), strict=True)
        ]

    def rows(self, numbers: Tensor) -> list[list[float]]:
        """The numbers of every episode's tokens; 0 for the prompt."""
        prompts = [len(each.nodes[0].tokens) for each in self.made]
        return [
            [0.0] * prompt + row[: each.length - prompt]
            for each, prompt, row in zip(self.made, prompts, numbers.tolist(), strict=True)
        ]

    def samples(self) -> Samples:
        return Samples(
            self.made,
            GROUP,
            frozen_logprobs=lambda: self.rows(self.reference),
            old_logprobs=lambda: self.rows(self.old),
            values=lambda: [],
            limit=10**9,  # no answer is overlong
        )

    def loss(self, algorithm: RlAlgorithm) -> tuple[Tensor, Tensor]:
        """Our loss, and its gradient by log π."""
        stamped, _ = algorithm.advantages(self.samples())
        count = self.mask.sum(-1).double()
        group = count.reshape(-1, GROUP).sum(-1).repeat_interleave(GROUP)
        wide = torch.ones(self.mask.shape, dtype=torch.float64)
        streams = {
            "response_mask": wide,
            "advantage": torch.tensor([row[0] for row in stamped], dtype=torch.float64)[:, None] * wide,
            "sequence": torch.arange(1, len(self.mask) + 1)[:, None] * wide,
            "episode_tokens": count[:, None] * wide,
            "group_tokens": group[:, None] * wide,
            "sampled_logprob": self.sampled,
            "old_logprob": self.old,
            "reference_logprob": self.reference,
        }
        chosen = {name: stream[self.mask] for name, stream in streams.items()}
        scored = Scored(self.policy[self.mask], chosen)
        total = torch.zeros((), dtype=torch.float64)
        for term in algorithm.terms(cast("Any", None), STAGE):
            assert set(term.needs) <= set(streams)
            total = total + term.coefficient * term.numerator(scored)[0] / term.denominator(chosen)
        (gradient,) = torch.autograd.grad(total, self.policy)
        return total, gradient


def with_options(trainer: Any, options: dict[str, Any]) -> None:
    """Give the trainer other options than those it was made with."""
    usual = {
        **{"loss_type": "dapo", "scale_rewards": "group", "beta": 0.0, "epsilon_low": 0.2, "epsilon_high": 0.28},
        **{"importance_sampling_level": "token", "off_policy_mask_threshold": None, "use_vllm": False, "delta": None},
        **{"use_bias_correction_kl": True, "vllm_importance_sampling_correction": True},
        **{"vllm_importance_sampling_mode": "token_truncate", "vllm_importance_sampling_clip_min": None},
        **{"vllm_importance_sampling_clip_max": None, "sapo_temperature_pos": 1.0, "sapo_temperature_neg": 1.05},
    }
    assert options.keys() <= usual.keys()
    for name, value in (usual | options).items():
        assert hasattr(trainer, name) or hasattr(trainer.args, name), name
        for holder in (trainer, trainer.args):
            if hasattr(holder, name):
                setattr(holder, name, value)


def score_with_trl(trainer: Any, made: list[Episode], numbers: Iterator[Tensor], sampled: Tensor) -> Any:
    """TRL's own scoring of the episodes; the model's forward passes return `numbers` one after the other."""
    answers = [[token for node in each.nodes[1:] for token in node.tokens] for each in made]
    masks = [[int(node.sampled) for node in each.nodes[1:] for _ in node.tokens] for each in made]
    logprobs = [row[: len(own)] for row, own in zip(sampled.tolist(), answers, strict=True)]
    prompts = [each.nodes[0].tokens for each in made]
    given = logprobs if trainer.use_vllm else None
    trainer._generate = lambda _: (prompts, answers, masks, [""] * len(made), given, {}, None, None)
    trainer._get_per_token_logps_and_entropies = lambda *_, **__: (next(numbers), torch.zeros(sampled.shape), None)
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = 1
    return trainer._generate_and_score_completions([{"prompt": ""} for _ in made])


SEQUENCE = {"importance_sampling_level": "sequence", "loss_type": "grpo"}
TIS: dict[str, Any] = {"use_vllm": True, "vllm_importance_sampling_clip_max": 1.5}
ICEPOP: dict[str, Any] = TIS | {"vllm_importance_sampling_clip_min": 0.6, "vllm_importance_sampling_mode": "token_mask"}
CASES: dict[str, tuple[dict[str, Any], PolicyOptimization]] = {
    "grpo": ({"loss_type": "grpo"}, Grpo(divide_by_std=True, aggregation="sequence")),
    "grpo of the paper": (
        {"loss_type": "grpo", "epsilon_high": 0.2, "beta": 0.04, "use_bias_correction_kl": False},
        GrpoPaper(),
    ),
    "bnpo": ({"loss_type": "bnpo", "scale_rewards": "none"}, Grpo()),
    "dr_grpo": ({"loss_type": "dr_grpo", "scale_rewards": "none", "epsilon_high": 0.2}, DrGrpo()),
    "dapo": ({}, Dapo()),
    "dapo, unbiased divergence": ({"beta": 0.1}, Dapo(reference_weight=0.1)),
    "cispo": ({"loss_type": "cispo", "epsilon_high": 1.3}, Cispo(weight_high=1.3)),
    "gspo": (
        SEQUENCE | {"epsilon_low": 0.05, "epsilon_high": 0.06, "beta": 0.2},
        Gspo(clip_low=0.05, clip_high=0.06, reference_weight=0.2),
    ),
    "sapo": ({"loss_type": "sapo"}, Sapo()),
    "dual clip": ({"delta": 1.4}, Dapo(dual_clip=1.4)),
    "off-policy sequence mask": ({"off_policy_mask_threshold": 0.02}, Dapo(sequence_mask=0.02)),
    "truncated": (TIS, Dapo(importance=ImportanceConfig(high=1.5))),
    "masked (IcePop)": (ICEPOP, Dapo(importance=ImportanceConfig(mode="mask", low=0.6, high=1.5))),
    "truncated by sequence": (
        TIS | {"vllm_importance_sampling_mode": "sequence_truncate"},
        Dapo(importance=ImportanceConfig(level="product", high=1.5)),
    ),
    "masked by sequence": (
        TIS | {"vllm_importance_sampling_mode": "sequence_mask", "off_policy_mask_threshold": 0.1},
        Dapo(importance=ImportanceConfig(level="product", mode="mask", high=1.5), sequence_mask=0.1),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_loss_and_gradient_equal_trl(name: str, trainer: Any, tokenizer: Tokenizer) -> None:
    options, algorithm = CASES[name]
    with_options(trainer, options)
    made = make_episodes(tokenizer.vocabulary_size)
    width = max(each.length - len(each.nodes[0].tokens) for each in made)
    mask = torch.stack(
        [torch.tensor([*each.sampled()[len(each.nodes[0].tokens) :], *[0] * width][:width]) > 0 for each in made]
    )
    numbers = Numbers(made, mask)
    sampled = numbers.sampled if options.get("use_vllm") else numbers.old  # what TRL takes for μ without an engine
    numbers.sampled = sampled
    inputs = score_with_trl(trainer, made, iter([numbers.old, numbers.reference]), sampled)
    advantages = algorithm.answer_advantages(REWARDS, GROUP)
    assert advantages == pytest.approx(inputs["advantages"].tolist(), abs=1e-6)
    inputs["advantages"] = torch.tensor(advantages, dtype=torch.float64)  # TRL's are in float32
    trainer._get_per_token_logps_and_entropies = lambda *_, **__: (numbers.policy, torch.zeros(mask.shape), None)
    expected = trainer.compute_loss(trainer.model, inputs)
    (expected_gradient,) = torch.autograd.grad(expected, numbers.policy)
    loss, gradient = numbers.loss(algorithm)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    assert expected_gradient.abs().max() > 1e-3
    assert (gradient - expected_gradient).abs().max() < 1e-7 * expected_gradient.abs().max() + 1e-9
    plain, _ = numbers.loss(Grpo())
    assert name == "bnpo" or abs(plain.item() - loss.item()) > 1e-4  # the option does something


def test_rloo_equals_trl(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Advantages with the divergence in the reward, loss and gradient. TRL's has no tools: answers of one turn."""
    generator = torch.Generator().manual_seed(5)
    lengths = (6, 1, 5, 9, 2, 14, 3, 4)
    made = [
        episode([("prompt", [20, 21, 22]), ("assistant", torch.randint(16, 90, (n,), generator=generator).tolist())], r)
        for n, r in zip(lengths, REWARDS, strict=True)
    ]
    mask = torch.arange(max(lengths))[None] < torch.tensor(lengths)[:, None]
    numbers = Numbers(made, mask, drift=0.1)
    numbers.sampled = numbers.old
    model = tiny_model(tokenizer)
    trainer = rloo_trainer(llama(model), tokenizer, tmp_path, REWARDS, num_generations=GROUP, beta=0.05)
    answers, prompts = [each.nodes[1].tokens for each in made], [each.nodes[0].tokens for each in made]
    passes = iter([numbers.old, numbers.reference])
    trainer._generate = lambda *_: (prompts, answers, [""] * len(made))
    trainer._get_per_token_logps_and_entropies = lambda *_, **__: (next(passes), torch.zeros(mask.shape), None)
    trainer.model.train()
    inputs = trainer._generate_and_score_completions([{"prompt": ""} for _ in made])
    stamped, _ = Rloo().advantages(numbers.samples())
    assert [row[0] for row in stamped] == pytest.approx(inputs["advantages"].tolist(), abs=1e-6)
    inputs["advantages"] = torch.tensor([row[0] for row in stamped], dtype=torch.float64)
    trainer._get_per_token_logps_and_entropies = lambda *_, **__: (numbers.policy, torch.zeros(mask.shape), None)
    expected = trainer.compute_loss(trainer.model, inputs)
    (expected_gradient,) = torch.autograd.grad(expected, numbers.policy)
    loss, gradient = numbers.loss(Rloo())
    assert trainer._metrics["train"]["clip_ratio/region_mean"][0] > 0.1
    assert loss.item() == pytest.approx(expected.item(), rel=1e-10)
    assert (gradient - expected_gradient).abs().max() < 1e-12
