"""The check of sampler and trainer: the more tokens, the stricter; rounding alone never fails it, other weights do."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from ingot.post.algorithms.grpo import Grpo
from ingot.post.rl.checks.ratio import RATIO_TOLERANCE, equal_tokens, problem
from ingot.post.rl.config import RlConfig
from ingot.post.rl.source import RlSource
from ingot.tokens.batch import TokenSequence
from ingot.tokens.tokenizer import Tokenizer
from ingot.train.losses.policy_gradient import Aggregation
from ingot.workspace.errors import CheckFailed
from ingot.workspace.stage import StageFolder
from tests.post.making import SUMS, tiny_model
from tests.post.rl.test_failures import trained

BF16 = 1e-2


def measure(count: int, sigma: float, generator: torch.Generator, runs: int = 300) -> list[tuple[float, float]]:
    """Mean ratio and k3 divergence of `count` tokens whose log-ratio is normal, with E[ratio] = 1, in so many runs."""
    logs = torch.randn(runs, count, dtype=torch.float64, generator=generator) * sigma - sigma**2 / 2
    ratios = logs.exp()
    return list(zip(ratios.mean(1).tolist(), (ratios - 1 - logs).mean(1).tolist(), strict=True))


@pytest.mark.parametrize("count", [1, 4, 30, 1000])
def test_rounding_alone_is_no_error_however_few_tokens_there_are(count: int) -> None:
    """σ = 0.1: a divergence of 0.005 a token, half of what is allowed. A fixed bound on the mean fails a run of one token."""
    found = measure(count, 0.1, torch.Generator().manual_seed(1))
    assert not any(problem(*each, count, BF16) for each in found)
    fixed = sum(abs(ratio - 1) > RATIO_TOLERANCE for ratio, _ in found)
    assert (fixed > 100) is (count < 30) or count == 30


def test_many_tokens_are_checked_as_strictly_as_ever() -> None:
    """A mean that is off by more than the tolerance, a divergence above it: both are found in a batch of usual size."""
    assert problem(1.0, 1e-3, 1e6, BF16) is None
    for ratio in (1.0205, 0.9795):
        assert problem(ratio, 1e-3, 1e6, BF16) is not None
    assert problem(1.0, 1.01 * BF16, 1e6, BF16) is not None and problem(1.0, 0.99 * BF16, 1e6, BF16) is None
    assert problem(1.021, 0.0, math.inf, BF16) is not None, "of a number of tokens that is not known"
    text = problem(1.25, 0.2, 100, BF16)
    assert (
        text == "their mean ratio is 1.2500 (it must be 1, within 0.27), their divergence 0.2 a token (at most 0.016)"
    )


@pytest.mark.parametrize("count", [30, 300])
def test_another_temperature_is_found_in_few_tokens(count: int) -> None:
    """A sampler at twice the temperature, over the logits of a vocabulary of 50: exact, by what it draws."""
    generator = torch.Generator().manual_seed(2)
    logits = 3 * torch.randn(20, count, 50, dtype=torch.float64, generator=generator)
    policy, sampler = logits.log_softmax(-1), (logits / 2).log_softmax(-1)
    drawn = torch.multinomial(sampler.exp().flatten(0, 1), 1, generator=generator).view(20, count, 1)
    logs = (policy.gather(-1, drawn) - sampler.gather(-1, drawn))[..., 0]
    for row in logs:
        assert problem(float(row.exp().mean()), float((row.exp() - 1 - row).mean()), count, BF16) is not None


def test_tokens_of_unequal_weight_count_for_fewer() -> None:
    """Answers of one and of three tokens, by hand: (Σ s)² / Σ s²; equal weights count as they are."""

    def answer(count: int, group: int) -> TokenSequence:
        streams = {"response_mask": [0.0] + [1.0] * count, "episode_tokens": [0.0] + [float(count)] * count}
        return TokenSequence([1] * (count + 1), streams | {"group_tokens": [0.0] + [float(group)] * count})

    listed = [answer(1, 4), answer(3, 4), TokenSequence([1], {"response_mask": [0.0]})]
    assert equal_tokens(listed, Aggregation("token")) == 4
    assert equal_tokens(listed, Aggregation("group")) == pytest.approx(4)
    assert equal_tokens(listed, Aggregation("sequence")) == pytest.approx(2**2 / (1 + 3 / 9))
    assert equal_tokens(listed[2:], Aggregation("token")) == 0


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed:UserWarning")  # of a CPU without bfloat16
def test_answers_of_one_token_without_a_reward_end_no_run(
    tokenizer: Tokenizer, make_folder: Callable[[str], StageFolder]
) -> None:
    """Only one of them passes through the model; the sampler's bfloat16 moves its ratio by more than 0.02."""
    options: dict[str, Any] = {"steps": 6, "sequence_length": 64, "tasks": SUMS, "prompts_per_step": 1, "group": 2}
    options |= {"max_new_tokens": 1, "algorithm": Grpo(), "precision": "float32", "device": "cpu", "canary": None}
    options |= {"sampling_precision": "bfloat16", "optimizer": {"lr": 1e-12}, "measure_start": False}
    model = tiny_model(tokenizer, std=0.6)
    rows = trained(RlSource(model, RlConfig.model_validate(options), make_folder("rl")))
    assert {row["ratio_tokens"] for row in rows} == {1.0}
    assert any(abs(row["ratio_mean"] - 1) > RATIO_TOLERANCE for row in rows), "else this shows nothing"


def test_a_message_names_the_step(tokenizer: Tokenizer, make_folder: Callable[[str], StageFolder]) -> None:
    options: dict[str, Any] = {"steps": 1, "sequence_length": 64, "tasks": SUMS, "device": "cpu", "canary": None}
    source = RlSource(tiny_model(tokenizer), RlConfig.model_validate(options), make_folder("rl"))
    with pytest.raises(CheckFailed, match=r"step 3: the trainer does not see .* their mean ratio is 1\.0300"):
        source.check_ratio(3, {"ratio_mean": 1.03, "sampler_divergence": 1e-6, "ratio_tokens": 500.0})
