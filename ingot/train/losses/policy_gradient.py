"""The policy gradient as a loss term: one formula, whose parts an algorithm of RL chooses.

    loss = −Σ_t a_t c_t f(r_t, A_t, π_t) / N                r = π/π_old  of a token, or of its sequence

    f      the surrogate: a clip, a clipped weight                     surrogates.py
    c      corrections for samples that π_old would not have drawn     off_policy.py
    a, N   the aggregation: what the mean is over                      below

Three probabilities of a sampled token:

    π        the policy that is trained, with a gradient: `scored.logprobs`
    π_old    the policy when the updates on the batch of samples began: stream `old_logprob`; or `sampled_logprob`, where an
             algorithm takes μ for it; or π itself without its gradient, where a batch has one update only
    μ        the sampler, when it drew the token: stream `sampled_logprob`

Further streams: `response_mask` (1 on sampled tokens that are learnt from), `advantage`, `sequence` (the number of the token's
sequence in the step, from 1), `episode_tokens` and `group_tokens` (the tokens of its answer, and of all answers to its task).
Where samples may be older than the policy, `present` is 1 on tokens that the present weights drew (post/rl/checks/staleness.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from ingot.train.losses.off_policy import LOG_RATIO_LIMIT, Correction, Level, Probabilities, ratio_at_level
from ingot.train.losses.surrogates import Clip, Surrogate
from ingot.train.losses.terms import LossTerm, Scored

Over = Literal["token", "sequence", "group", "constant"]
RATIOS = {  # of π/μ, as metrics: how far tokens are from where they were sampled
    "ratio/below_0.5": (0.0, 0.5),
    "ratio/0.5_to_0.8": (0.5, 0.8),
    "ratio/0.8_to_1.25": (0.8, 1.25),
    "ratio/1.25_to_2": (1.25, 2.0),
    "ratio/above_2": (2.0, float("inf")),
}


@dataclass(frozen=True)
class Aggregation:
    """What the mean over a step's tokens is over; none depends on how the step is cut into micro-batches.

    token       Σ l / tokens                              every token weighs the same (DAPO; TRL `dapo`, verl `token-mean`)
    sequence    mean over answers of Σ l / |answer|       every answer weighs the same (GRPO; TRL `grpo`)
    group       mean over tasks of Σ l / |its answers|    every task weighs the same (SkyRL `prompt_mean`)
    constant    Σ l / (answers · length)                  no length in it (Dr. GRPO, arXiv 2503.20783; TRL `dr_grpo`)
    """

    over: Over = "token"
    length: int = 1  # of `constant`

    def needs(self) -> tuple[str, ...]:
        """The streams that are read."""
        named: dict[Over, tuple[str, ...]] = {"token": (), "group": ("group_tokens",)}
        return ("response_mask", *named.get(self.over, ("episode_tokens",)))

    def shares(self, streams: Mapping[str, Tensor], dtype: torch.dtype) -> Tensor:
        """What adds up to N over the step [n]."""
        mask = streams["response_mask"].to(dtype)
        if self.over == "token":
            return mask
        return mask / streams["group_tokens" if self.over == "group" else "episode_tokens"].clamp(min=1)

    def weights(self, streams: Mapping[str, Tensor], dtype: torch.dtype) -> Tensor:
        """The factor of each token's loss [n]."""
        return (
            streams["response_mask"].to(dtype) / self.length if self.over == "constant" else self.shares(streams, dtype)
        )

    def total(self, streams: Mapping[str, Tensor]) -> Tensor:
        """N: how many tokens, answers or tasks there are."""
        return self.shares(streams, torch.float64).sum()


TOKEN_MEAN = Aggregation()


@dataclass(frozen=True)
class PolicyGradient(LossTerm):
    """The term. It also logs, as means over what is aggregated: π/μ and the shares of tokens in the ranges of RATIOS, the share
    beyond a bound, KL(μ ‖ π), and the entropy of π a token, E_μ[−(π/μ) log π]."""

    surrogate: Surrogate = field(default_factory=Clip)
    level: Level = "token"
    aggregation: Aggregation = TOKEN_MEAN
    corrections: tuple[Correction, ...] = ()
    old: str | None = "sampled_logprob"  # the stream of log π_old; None: π itself, without its gradient
    limit: float = LOG_RATIO_LIMIT
    name: str = "policy_gradient"
    coefficient: float = 1.0
    needs: tuple[str, ...] = field(init=False)
    by_token: bool = field(init=False)

    def __post_init__(self) -> None:
        by_token = self.level == "token" and all(one.by_token for one in self.corrections)
        listed = [*self.aggregation.needs(), "advantage", "sampled_logprob", *([] if self.old is None else [self.old])]
        object.__setattr__(self, "needs", tuple(dict.fromkeys(listed if by_token else [*listed, "sequence"])))
        object.__setattr__(self, "by_token", by_token)

    def denominator(self, streams: Mapping[str, Tensor]) -> Tensor:
        return self.aggregation.total(streams)

    def numerator(self, scored: Scored) -> tuple[Tensor, dict[str, Tensor]]:
        streams, mask = scored.streams, scored.streams["response_mask"]
        logs = probabilities(scored, self.old)
        ratio = ratio_at_level(scored.logprobs - logs.old, streams, self.level, self.limit)
        objective, beyond = self.surrogate(ratio, streams["advantage"], scored.logprobs)
        exact = scored.logprobs.dtype
        weights, shares = self.aggregation.weights(streams, exact), self.aggregation.shares(streams, exact)
        log_drift = (logs.current - logs.sampled) * mask
        drift = log_drift.exp()
        logged = {
            **{name: (shares * ((drift >= low) & (drift < high))).sum() for name, (low, high) in RATIOS.items()},
            "entropy": -(drift * logs.current * shares).sum(),
            "ratio_mean": (drift * shares).sum(),
            "clip_share": (beyond * shares).sum(),
            "sampler_divergence": ((drift - 1 - log_drift) * shares).sum(),  # k3 estimate of KL(μ ‖ π)
        }
        if "present" in streams:  # only there the sampler had the weights that are trained
            present = shares * streams["present"]
            logged["present_share"] = present.sum()
            logged["present_ratio_mean"] = (drift * present).sum()
            logged["present_divergence"] = ((drift - 1 - log_drift) * present).sum()
        if self.corrections:
            factors = torch.stack([one.weights(logs, streams) for one in self.corrections]).prod(dim=0)
            logged["correction_mean"] = (factors * shares).sum()
            weights = weights * factors
        return -(objective * weights).sum(), logged


Estimator = Literal["k1", "k2", "k3", "k3_unbiased"]


@dataclass(frozen=True)
class ReferenceDivergence(LossTerm):
    """An estimate of KL(π ‖ ref) from sampled tokens (J. Schulman, "Approximating KL divergence"), with d = log π − log ref:

    k1             d                        right on average; as a loss its expected gradient is 0: put it into the reward
    k2             d² / 2                   biased a little; its expected gradient is that of KL(π ‖ ref)
    k3             e^−d − 1 + d             right on average, never negative; its expected gradient is that of KL(ref ‖ π)
    k3_unbiased    r (e^−d − 1 + d)         as k3, with the gradient of KL(π ‖ ref) (DeepSeek-V3.2, arXiv 2512.02556)

    Stream `reference_logprob`; the others, level and aggregation as of the policy gradient.
    """

    coefficient: float = 0.0
    estimator: Estimator = "k3_unbiased"
    level: Level = "token"
    aggregation: Aggregation = TOKEN_MEAN
    old: str | None = "sampled_logprob"
    limit: float = LOG_RATIO_LIMIT
    name: str = "reference_divergence"
    needs: tuple[str, ...] = field(init=False)
    by_token: bool = field(init=False)

    def __post_init__(self) -> None:
        by_token = self.level == "token" or self.estimator != "k3_unbiased"
        listed = [*self.aggregation.needs(), "sampled_logprob", "reference_logprob", *([self.old] if self.old else [])]
        object.__setattr__(self, "needs", tuple(dict.fromkeys(listed if by_token else [*listed, "sequence"])))
        object.__setattr__(self, "by_token", by_token)

    def denominator(self, streams: Mapping[str, Tensor]) -> Tensor:
        return self.aggregation.total(streams)

    def numerator(self, scored: Scored) -> tuple[Tensor, dict[str, Tensor]]:
        streams = scored.streams
        difference = (scored.logprobs - streams["reference_logprob"]) * streams["response_mask"]
        values = {
            "k1": lambda: difference,
            "k2": lambda: difference.square() / 2,
            "k3": lambda: (-difference).exp() - 1 + difference,
            "k3_unbiased": lambda: (
                ratio_at_level(scored.logprobs - probabilities(scored, self.old).old, streams, self.level, self.limit)
                * ((-difference).exp() - 1 + difference)
            ),
        }
        return (values[self.estimator]() * self.aggregation.weights(streams, difference.dtype)).sum(), {}


def probabilities(scored: Scored, old: str | None) -> Probabilities:
    """log π, log π_old and log μ of the scored tokens."""
    current = scored.logprobs.detach()
    stamped = {name: scored.streams[name].to(current.dtype) for name in {old or "sampled_logprob", "sampled_logprob"}}
    return Probabilities(current, current if old is None else stamped[old], stamped["sampled_logprob"])
