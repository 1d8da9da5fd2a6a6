"""Checks that the trainer sees the probabilities that the sampler reported: bounds are wider where tokens are few.

Over the tokens that the present weights drew:

    mean ratio      |mean π/μ − 1|  ≤  0.02 + 4 sqrt(2 D / n)           D = KL(μ ‖ π) a token, as measured
    divergence      D               ≤  τ (1 + 4 sqrt(2 / n))            τ = 1e-5 in float32, 1e-2 in bfloat16,
                                                                        0.25 in float8: ten times that of SmolLM2-135M

The second summands are four standard errors. Given what was before it a token's ratio has mean 1 under μ, so ratios of tokens are
uncorrelated; where rounding makes log π/μ normal with a small variance σ², the ratio has variance σ² = 2 D, and the estimate of D
from one token has the standard deviation √2 D. From some thousand tokens on they hardly count; one short answer may be far off.

n is the number of tokens if all weigh the same in the mean, else that of as many equal ones: (Σ s)² / Σ s² of their weights s. A
step without a token to learn from has no mean at all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ingot.model.transformer import Transformer
from ingot.post.algorithm import SampledAlgorithm
from ingot.tokens.batch import TokenSequence
from ingot.train.device import FLOAT8
from ingot.train.float8 import float8_layers
from ingot.train.losses.policy_gradient import RATIOS, Aggregation
from ingot.workspace.errors import CheckFailed

RATIO_TOLERANCE = 0.02
DIVERGENCE_TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 1e-2, FLOAT8: 0.25}  # KL(μ ‖ π) a token, by precision
ERRORS = 4  # standard errors
FEW = 0.05  # the share of tokens below which their mean ratio is not checked
PRESENT = ("present_share", "present_ratio_mean", "present_divergence")
MEANS = (*RATIOS, "entropy", "ratio_mean", "clip_share", "sampler_divergence", "correction_mean", *PRESENT)


class RatioCheck:
    """Checks every step of a stage (`after_step`), where versions say that the policy has drawn tokens as it is.

    The mean ratio alone cannot show another sampler: the expectation of π/μ over what μ samples is 1 for any two distributions.
    """

    def __init__(
        self,
        model: Transformer,
        algorithm: SampledAlgorithm,
        folder: Path,
        dtype: torch.dtype,
        sampling_dtype: torch.dtype,
    ) -> None:
        self.model, self.algorithm, self.folder = model, algorithm, folder
        self.dtype, self.sampling_dtype = dtype, sampling_dtype

    def __call__(self, step: int, metrics: dict[str, Any]) -> dict[str, float]:
        """Fail if the trainer does not see what the sampler reported; the metrics of present tokens."""
        if "ratio_mean" not in metrics or "sampler_divergence" not in metrics:
            raise CheckFailed(
                f"no loss term of {self.algorithm.algorithm} logs ratio_mean and sampler_divergence",
                place=str(self.folder),
                fix="let a term derive from PolicyGradient (train/losses/policy_gradient.py), which logs them",
            )
        if metrics.get("empty_step"):
            leave_out_means(metrics)
            return {}
        ratio, divergence, share = measured(metrics)
        if share < FEW or not is_present(metrics):
            return {}  # the policy has been updated since these tokens were sampled
        tokens = share * metrics.get("ratio_tokens", math.inf)
        trained = FLOAT8 if float8_layers(self.model) else self.dtype
        tolerance = max(DIVERGENCE_TOLERANCE[each] for each in (trained, self.sampling_dtype))
        found = problem(ratio, divergence, tokens, tolerance)
        if found is not None:
            raise CheckFailed(
                f"step {step}: the trainer does not see the probabilities that the sampler reported: {found}",
                place=str(self.folder),
                fix="the sampler runs other weights, another temperature or another mask than the trainer",
            )
        return {"present_ratio_mean": ratio, "present_divergence": divergence} if "present_share" in metrics else {}


def count_metrics(sequences: Sequence[TokenSequence], mean: Aggregation) -> dict[str, float]:
    """How many tokens the means of a step are over, and whether there is none."""
    count = equal_tokens(sequences, mean)
    return {"ratio_tokens": count, "empty_step": float(count == 0)}


def equal_tokens(sequences: Sequence[TokenSequence], mean: Aggregation) -> float:
    """n: as many tokens of equal weight have a mean as certain as theirs."""
    total, squares = 0.0, 0.0
    for each in sequences:
        mask = each.streams["response_mask"]
        count = sum(mask)
        if count:
            at = mask.index(1.0)  # all tokens of an answer weigh the same
            streams = {name: torch.tensor([each.streams[name][at]]) for name in mean.needs()}
            share = float(mean.shares(streams, torch.float64))
            total, squares = total + count * share, squares + count * share**2
    return total**2 / squares if squares else 0.0


def measured(metrics: dict[str, Any]) -> tuple[float, float, float]:
    """The mean ratio and the divergence of the tokens that are checked, and their share; takes what is no metric by itself."""
    if "present_share" not in metrics:
        return metrics["ratio_mean"], metrics["sampler_divergence"], 1.0
    share = metrics["present_share"]  # of tokens of several versions, those of the present one
    least = max(share, FEW)
    return metrics.pop("present_ratio_mean") / least, metrics.pop("present_divergence") / least, share


def leave_out_means(metrics: dict[str, Any]) -> None:
    """Means over no token say nothing."""
    for name in MEANS:
        metrics.pop(name, None)


def problem(ratio: float, divergence: float, tokens: float, tolerance: float) -> str | None:
    """What is wrong with these numbers of so many tokens; `tolerance` is τ."""
    count = max(1.0, tokens)
    most = RATIO_TOLERANCE + ERRORS * (2 * max(0.0, divergence) / count) ** 0.5
    bound = tolerance * (1 + ERRORS * (2 / count) ** 0.5)
    if abs(ratio - 1) <= most and divergence <= bound:
        return None
    return (
        f"their mean ratio is {ratio:.4f} (it must be 1, within {most:.2g}), their divergence {divergence:.2g} a token "
        f"(at most {bound:.2g})"
    )


def is_present(metrics: Mapping[str, Any]) -> bool:
    """Whether the batch has tokens that the policy drew as it is."""
    return bool(metrics.get("staleness/0", metrics.get("staleness", 0.0) == 0))
