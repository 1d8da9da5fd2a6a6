"""The terms a loss is made of: sums over scored tokens, each divided by its own global denominator.

    loss = Σ_terms  coefficient · (Σ over all scored tokens of the step) / (denominator of the whole step)

The denominator is counted over every micro-batch (and every rank) of the step before the first backward pass, so the loss
and its gradient do not depend on packing, on micro-batching, on the order of sequences or on the number of processes.
A term looks only at token log-probabilities and per-token streams; what those numbers mean is decided
where they are stamped (post/, for SFT, DPO, GRPO and distillation).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from ingot.workspace.errors import CheckFailed


@dataclass(frozen=True)
class Ahead:
    """One step of multi-token prediction: log-probabilities of tokens further ahead, and the weights of these tokens."""

    logprobs: Tensor
    weights: Tensor


@dataclass(frozen=True)
class Scored:
    """The scored tokens of a micro-batch, flattened: n log-probabilities and n values of each stream.

    Only if some term wants them: `log_normalisers` (n values of log Σ e^logit), and the steps of multi-token prediction.
    """

    logprobs: Tensor
    streams: Mapping[str, Tensor]
    log_normalisers: Tensor | None = None
    ahead: tuple[Ahead, ...] = ()
    rows: Tensor | None = None  # [n]: the row of the batch that each token is in
    loss: Tensor | None = (
        None  # the whole loss, if it was computed with its gradient (fused_head.py); the rest is for the log
    )


@dataclass(frozen=True)
class Factors:
    """Sum = Σ_t logprob_t · log p_t + normaliser_t · (log Z_t)² + the mean over the steps ahead of Σ_t ahead · w_t log p_t."""

    logprob: Tensor | None = None
    normaliser: Tensor | None = None
    ahead: float = 0.0


class LossTerm(ABC):
    """One summand of the loss. `needs` are the streams it reads, `wants` the further fields of Scored."""

    name: str
    coefficient: float = 1.0
    needs: tuple[str, ...]
    wants: tuple[Literal["log_normalisers", "ahead"], ...] = ()
    by_token = True  # the numerator is a sum over single tokens: it may be computed in parts of a row

    @abstractmethod
    def denominator(self, streams: Mapping[str, Tensor]) -> Tensor:
        """The divisor of the sum, counted from the streams of one micro-batch; added up over the step."""

    @abstractmethod
    def numerator(self, scored: Scored) -> tuple[Tensor, dict[str, Tensor]]:
        """The sum over one micro-batch, and sums of things worth logging (divided by the same denominator)."""

    def factors(self, streams: Mapping[str, Tensor]) -> Factors | None:
        """The factors of each token's log p and (log Z)² in the numerator, if it is such a sum, known beforehand."""
        return None


@dataclass(frozen=True)
class CrossEntropy(LossTerm):
    """−Σ w_t log p_t / Σ w_t: pre-training and SFT. Stream `weight`."""

    name: str = "cross_entropy"
    coefficient: float = 1.0
    needs: tuple[str, ...] = ("weight",)

    def denominator(self, streams: Mapping[str, Tensor]) -> Tensor:
        return streams["weight"].sum()

    def numerator(self, scored: Scored) -> tuple[Tensor, dict[str, Tensor]]:
        return -(scored.streams["weight"] * scored.logprobs).sum(), {}

    def factors(self, streams: Mapping[str, Tensor]) -> Factors:
        return Factors(logprob=-streams["weight"])


@dataclass(frozen=True)
class ZLoss(LossTerm):
    """Σ w_t (log Z_t)² / Σ w_t with Z = Σ e^logit: keeps the logits from drifting (PaLM, arXiv 2204.02311). Stream `weight`."""

    coefficient: float = 1e-5
    name: str = "z_loss"
    needs: tuple[str, ...] = ("weight",)
    wants: tuple[Literal["log_normalisers", "ahead"], ...] = ("log_normalisers",)

    def denominator(self, streams: Mapping[str, Tensor]) -> Tensor:
        return streams["weight"].sum()

    def numerator(self, scored: Scored) -> tuple[Tensor, dict[str, Tensor]]:
        assert scored.log_normalisers is not None
        return (scored.streams["weight"] * scored.log_normalisers.square()).sum(), {}

    def factors(self, streams: Mapping[str, Tensor]) -> Factors:
        return Factors(normaliser=streams["weight"])


@dataclass(frozen=True)
class MultiTokenPrediction(LossTerm):
    """The mean over the steps of −Σ w log p / Σ w_t for tokens further ahead (DeepSeek-V3, arXiv 2412.19437). Stream `weight`.

    A token counts with its own weight, once per step that predicts it; one near the start of its document is predicted by
    fewer steps, and the denominator stays that of all tokens, so that its neighbours do not count more for it.
    """

    coefficient: float = 0.3
    name: str = "multi_token"
    needs: tuple[str, ...] = ("weight",)
    wants: tuple[Literal["log_normalisers", "ahead"], ...] = ("ahead",)

    def denominator(self, streams: Mapping[str, Tensor]) -> Tensor:
        return streams["weight"].sum()

    def numerator(self, scored: Scored) -> tuple[Tensor, dict[str, Tensor]]:
        losses = [-(step.weights * step.logprobs).sum() for step in scored.ahead]
        return torch.stack(losses).mean(), {}

    def factors(self, streams: Mapping[str, Tensor]) -> Factors:
        return Factors(ahead=-1.0)


@dataclass(frozen=True)
class PolicyGradient(LossTerm):
    """Clipped policy gradient (PPO's surrogate, arXiv 1707.06347), token-level mean over the step (DAPO, arXiv 2503.14476).

    −Σ_t min(r_t A_t, clip(r_t, 1 − low, 1 + high) A_t) / (number of sampled tokens),  r_t = exp(log p_t − log μ_t)

    with μ the sampler's probability of the token it drew. Streams: `response_mask` (1 on sampled tokens), `advantage`,
    `sampled_logprob`.
    """

    clip_low: float = 0.2
    clip_high: float = 0.28
    name: str = "policy_gradient"
    coefficient: float = 1.0
    needs: tuple[str, ...] = ("response_mask", "advantage", "sampled_logprob")

    def denominator(self, streams: Mapping[str, Tensor]) -> Tensor:
        return streams["response_mask"].sum()

    def numerator(self, scored: Scored) -> tuple[Tensor, dict[str, Tensor]]:
        mask, advantage = scored.streams["response_mask"], scored.streams["advantage"]
        log_ratio = (scored.logprobs - scored.streams["sampled_logprob"]) * mask
        ratio = log_ratio.exp()
        clipped = ratio.clamp(1 - self.clip_low, 1 + self.clip_high)
        surrogate = torch.minimum(ratio * advantage, clipped * advantage)
        was_clipped = ((clipped * advantage) < (ratio * advantage)).float()
        logged = {
            "ratio_mean": (ratio * mask).sum().detach(),
            "clip_share": (was_clipped * mask).sum().detach(),
            "sampler_divergence": ((ratio - 1 - log_ratio) * mask).sum().detach(),  # k3 estimate of KL(μ ‖ π)
        }
        return -(surrogate * mask).sum(), logged


@dataclass(frozen=True)
class ReferenceDivergence(LossTerm):
    """Σ_t r_t (e^{d_t} − 1 − d_t) / (sampled tokens), d = log ref − log p: the k3 estimate of KL(π ‖ ref).

    J. Schulman, "Approximating KL divergence". The ratio r_t of PolicyGradient is 1 in value while the policy is the
    sampler, but not in gradient: with it the expected gradient is that of KL(π ‖ ref) (DeepSeek-V3.2, arXiv 2512.02556),
    without it that of KL(ref ‖ π). Streams: `response_mask`, `sampled_logprob`, `reference_logprob`.
    """

    coefficient: float = 0.0
    name: str = "reference_divergence"
    needs: tuple[str, ...] = ("response_mask", "sampled_logprob", "reference_logprob")

    def denominator(self, streams: Mapping[str, Tensor]) -> Tensor:
        return streams["response_mask"].sum()

    def numerator(self, scored: Scored) -> tuple[Tensor, dict[str, Tensor]]:
        mask = scored.streams["response_mask"]
        difference = (scored.streams["reference_logprob"] - scored.logprobs) * mask
        ratio = ((scored.logprobs - scored.streams["sampled_logprob"]) * mask).exp()
        return (ratio * (difference.exp() - 1 - difference) * mask).sum(), {}


@dataclass(frozen=True)
class Preference(LossTerm):
    """Direct preference optimisation (arXiv 2305.18290), length-normalised by default (as in Tülu 3 and OLMo 3).

    −Σ_pairs log σ( β (D_w/|y_w| − D_l/|y_l|) ) / pairs,   D = Σ_t log p_t − log ref_t  over a completion's tokens

    Streams: `chosen` and `rejected` carry the pair's number within the step, from 1, on the tokens of the completion and
    0 elsewhere; `reference_logprob`. Both completions of a pair must be in the same micro-batch.
    """

    by_token = False
    beta: float = 5.0
    length_normalised: bool = True
    name: str = "preference"
    coefficient: float = 1.0
    needs: tuple[str, ...] = ("chosen", "rejected", "reference_logprob")

    def denominator(self, streams: Mapping[str, Tensor]) -> Tensor:
        pairs, others = streams["chosen"].unique(), streams["rejected"].unique()
        if not torch.equal(pairs[pairs > 0], others[others > 0]):
            raise CheckFailed("a preference pair was split over two micro-batches", fix="pack both halves together")
        return (pairs > 0).sum().float()

    def numerator(self, scored: Scored) -> tuple[Tensor, dict[str, Tensor]]:
        log_ratio = scored.logprobs - scored.streams["reference_logprob"]
        chosen, rejected = (self._by_pair(log_ratio, scored.streams[name]) for name in ("chosen", "rejected"))
        margin = self.beta * (chosen - rejected)
        logged = {
            "preference_accuracy": (margin > 0).float().sum().detach(),
            "margin": margin.sum().detach(),
            "chosen_reward": self.beta * chosen.sum().detach(),
            "rejected_reward": self.beta * rejected.sum().detach(),
        }
        return -logsigmoid(margin).sum(), logged

    def _by_pair(self, log_ratio: Tensor, number: Tensor) -> Tensor:
        """D (over |y|) of every pair's completion, in the order of the pairs' numbers."""
        member = number > 0
        pairs, index = number[member].unique(return_inverse=True)
        totals = torch.zeros(len(pairs), dtype=log_ratio.dtype, device=log_ratio.device)
        totals = totals.index_add(0, index, log_ratio[member])
        if self.length_normalised:
            totals = totals / torch.bincount(index, minlength=len(pairs))
        return totals
