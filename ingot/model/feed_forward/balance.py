"""Keeps the loads of a mixture's experts equal: balance losses and selection biases behind one interface.

    in the pass     loss(seen)        a sum over tokens, added to the loss
                    observe(seen)     counts that `update` will need
    after the step  update(bias, …)   moves the router's selection bias β, from the loads of the whole step

With E experts, K chosen by each of T tokens, s̃_ti the scores of token t as shares (Σ_i s̃_ti = 1), n_i the choices of expert i
and n̄ their mean:

    loss       α Σ_i f_i · mean_t s̃_ti,   f_i = E·n_i/(K·T)      Switch (arXiv 2101.03961), V3 (2412.19437), global (2501.11873)
    z_loss     c · mean_t (log Σ_i exp z_ti)²                     ST-MoE (arXiv 2202.08906)
    bias       β_i += γ·sign(n̄ − n_i), optionally recentred       loss-free balancing (arXiv 2408.15664), Trinity Nano and Mini
    smebu      Δ_i = λ·tanh(κ(n̄ − n_i)/n̄), recentred; m ← μm + (1 − μ)Δ; β += m            Trinity Large (arXiv 2602.17004)
    quantile   β ← (1 − ρ)β + ρ(mean_i q_i − q_i),   q_i the (1 − K/E)-quantile of expert i's scores

Perfect balance gives a loss of α exactly. f is counted over each sequence (a document: nothing depends on how documents were
packed), over the pass, or over the step so far: all its earlier passes and all ranks. It carries no gradient; P does. Since
every loss is a sum over tokens, sequences weigh by their length.

Quantiles need all scores of a step. A balancer keeps histograms of BINS equal bins in a coordinate that spreads the scores out
(log s for softmax, the logit otherwise). They add up exactly over passes and ranks, so that micro-batching changes nothing; a
quantile is right to one bin, 1/64 of a nat. Scores beyond the ends count in the last bin.

Shapes: N tokens, E experts, H bins, S sequences.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from ingot.model.context_parallel import ContextParallel
from ingot.model.feed_forward.router import Float32Buffers, Routing
from ingot.model.record import RouterLoad
from ingot.workspace.kinds import Part, Parts

BINS, BIN_WIDTH = 2048, 1 / 64


@dataclass(frozen=True)
class Seen:
    """The data of one pass through one router, for its balancers."""

    routing: Routing
    shares_NE: Tensor  # s̃
    real_N: Tensor  # false on padding
    sequences_N: Tensor  # the number of each token's sequence, from 0 and below N (times the ranks that share the rows)
    choices_E: Tensor  # n of this pass
    before_E: Tensor | None  # n of the step's earlier passes
    # adds over the ranks that have other tokens, in place
    sum_ranks: Callable[[Tensor], Tensor] = lambda tensor: tensor
    context_parallel: ContextParallel | None = None  # the ranks that have other tokens of the same rows


class Balancer(Float32Buffers):
    """One way to balance. A kind overrides what it does; its buffers are saved with the model."""

    name: str = ""  # of its loss in the log
    coefficient: float = 0.0

    def loss(self, seen: Seen) -> Tensor | None:
        """coefficient · loss, summed over the pass's tokens; None if it has none."""
        return None

    def observe(self, seen: Seen) -> Tensor | None:
        """Counts [E, H] that add up over the passes of a step; None if it needs none."""
        return None

    def update(self, bias_E: Tensor, load: RouterLoad) -> None:
        """Move the selection bias in place; `load` is that of the whole step."""


class BalancerConfig(Part):
    """Base of the balancers' options; a file of your own is one more: `balancers: [{kind: file.py:Name}]`."""

    kind: str = Field("", description="which balancer this is: a name, or file.py:Name")
    moves_bias: ClassVar[bool] = False  # the router's selection bias, after every step

    @abstractmethod
    def build(self, experts: int, active: int, score: str) -> Balancer:
        """The balancer of a router that chooses `active` of `experts` by scores of this kind."""


class AuxiliaryLoss(BalancerConfig):
    """Switch-style balance loss (arXiv 2101.03961), α·Σ f_i P_i with f = N·(share of choices) so that balance gives α.

    `scope` says over which tokens the shares f are counted: each sequence (DeepSeek-V3), each micro-batch, or all tokens
    of the step (arXiv 2501.11873, Qwen3).
    """

    kind: Literal["loss"] = Field("loss", description="which balancer this is")
    coefficient: float = Field(gt=0, description="α")
    scope: Literal["sequence", "micro_batch", "global"] = Field("global", description="where f is counted")

    def build(self, experts: int, active: int, score: str) -> LossBalancer:
        return LossBalancer(self)


class RouterZLoss(BalancerConfig):
    """Router z-loss (ST-MoE, arXiv 2202.08906): coefficient · mean (logsumexp of the router's logits)²."""

    kind: Literal["z_loss"] = Field("z_loss", description="which balancer this is")
    coefficient: float = Field(gt=0, description="factor of the loss")

    def build(self, experts: int, active: int, score: str) -> ZLossBalancer:
        return ZLossBalancer(self)


class BiasUpdate(BalancerConfig):
    """Loss-free balancing (arXiv 2408.15664): b_i += rate·sign(mean load − load_i) after every step."""

    moves_bias = True
    kind: Literal["bias"] = Field("bias", description="which balancer this is")
    rate: float = Field(1e-3, ge=0, description="γ")
    recentre: bool = Field(False, description="subtract the mean of b afterwards (Trinity Nano and Mini)")

    def build(self, experts: int, active: int, score: str) -> BiasBalancer:
        return BiasBalancer(self)


class Smebu(BalancerConfig):
    """Soft-clamped momentum expert bias update (Trinity Large, arXiv 2602.17004).

    v = (mean − load)/mean; Δ = rate·tanh(sharpness·v), recentred; m ← momentum·m + (1 − momentum)·Δ; b += m
    """

    moves_bias = True
    kind: Literal["smebu"] = Field("smebu", description="which balancer this is")
    rate: float = Field(5e-4, gt=0, description="λ")
    momentum: float = Field(0.5, ge=0, lt=1, description="β")
    sharpness: float = Field(2.0, gt=0, description="κ")

    def build(self, experts: int, active: int, score: str) -> SmebuBalancer:
        return SmebuBalancer(self, experts)


class QuantileUpdate(BalancerConfig):
    """Quantile balancing: move b_i so that expert i's scores pass a common threshold for a K/N share of the tokens.

    q_i = the (1 − K/N) quantile of expert i's scores in the step; b ← (1 − rate)·b + rate·(mean(q) − q)
    """

    moves_bias = True
    kind: Literal["quantile"] = Field("quantile", description="which balancer this is")
    rate: float = Field(0.1, gt=0, le=1, description="share of the way to the new bias in each step")

    def build(self, experts: int, active: int, score: str) -> QuantileBalancer:
        return QuantileBalancer(self, 1 - active / experts, score)


BALANCERS = Parts(
    BalancerConfig,  # type: ignore[type-abstract]
    "balancer",
    (AuxiliaryLoss, RouterZLoss, BiasUpdate, Smebu, QuantileUpdate),
)
AnyBalancer = Annotated[BalancerConfig, BALANCERS]


class LossBalancer(Balancer):
    """α Σ_i f_i P_i."""

    name = "router/balance_loss"

    def __init__(self, config: AuxiliaryLoss) -> None:
        super().__init__()
        self.config, self.coefficient = config, config.coefficient

    def loss(self, seen: Seen) -> Tensor:
        shares_NE = seen.shares_NE * seen.real_N[:, None]
        if self.config.scope == "sequence":
            return self.coefficient * (self._of_sequences(seen)[seen.sequences_N] * shares_NE).sum()
        choices_E = seen.choices_E
        if self.config.scope == "global":
            choices_E = choices_E.clone() if seen.before_E is None else choices_E + seen.before_E
            choices_E = seen.sum_ranks(choices_E)
        elif seen.context_parallel is not None:
            choices_E = seen.context_parallel.sum(choices_E.clone())
        return self.coefficient * (_relative(choices_E.to(shares_NE.dtype)) * shares_NE.sum(0)).sum()

    def _of_sequences(self, seen: Seen) -> Tensor:
        chosen_NE = torch.zeros_like(seen.shares_NE)
        chosen_NE.scatter_(
            1, seen.routing.indices_NK, seen.real_N[:, None].to(chosen_NE).expand_as(seen.routing.indices_NK)
        )
        ranks = 1 if seen.context_parallel is None else seen.context_parallel.size
        choices_SE = chosen_NE.new_zeros(ranks * len(chosen_NE), chosen_NE.shape[1])
        choices_SE.index_add_(0, seen.sequences_N, chosen_NE)
        return _relative(choices_SE if seen.context_parallel is None else seen.context_parallel.sum(choices_SE))


def _relative(choices: Tensor) -> Tensor:
    """f along the last axis: choices over their mean (Σ_i n_i = K·T, so that this is E·n_i/(K·T)); 0 where there are none."""
    return choices * choices.shape[-1] / choices.sum(-1, keepdim=True).clamp(min=1)


class ZLossBalancer(Balancer):
    """c · (log Σ exp z)²: keeps logits small, so that a softmax in low precision stays accurate."""

    name = "router/z_loss"

    def __init__(self, config: RouterZLoss) -> None:
        super().__init__()
        self.coefficient = config.coefficient

    def loss(self, seen: Seen) -> Tensor:
        logits_NE = seen.routing.logits_NE.to(seen.shares_NE.dtype)
        return self.coefficient * (logits_NE.logsumexp(-1).square() * seen.real_N).sum()


class BiasBalancer(Balancer):
    """A step of fixed size towards balance."""

    def __init__(self, config: BiasUpdate) -> None:
        super().__init__()
        self.config = config

    def update(self, bias_E: Tensor, load: RouterLoad) -> None:
        choices_E = load.choices_E
        bias_E += self.config.rate * torch.sign(choices_E.sum() - len(choices_E) * choices_E)  # integers: 0 is exact
        if self.config.recentre:
            bias_E -= bias_E.mean()


class SmebuBalancer(Balancer):
    """A soft sign and momentum: near balance the steps shrink instead of changing sign."""

    momentum: Tensor

    def __init__(self, config: Smebu, experts: int) -> None:
        super().__init__()
        self.config = config
        self.register_buffer("momentum", torch.zeros(experts))

    def update(self, bias_E: Tensor, load: RouterLoad) -> None:
        mean = load.choices_E.float().mean()
        violation_E = (mean - load.choices_E) / mean.clamp(min=1e-6)  # a step without tokens moves nothing
        step_E = self.config.rate * torch.tanh(self.config.sharpness * violation_E)
        self.momentum.lerp_(step_E - step_E.mean(), 1 - self.config.momentum)
        bias_E += self.momentum


class QuantileBalancer(Balancer):
    """Every expert's scores pass a common threshold for a K/E share of the tokens."""

    def __init__(self, config: QuantileUpdate, level: float, score: str) -> None:
        super().__init__()
        self.config, self.level, self.score = config, level, score
        self.lowest = -BINS * BIN_WIDTH * (1 if self.score == "softmax" else 0.5)  # a log of a share is never above 0

    def observe(self, seen: Seen) -> Tensor:
        spread_NE = seen.routing.scores_NE.log() if self.score == "softmax" else seen.routing.logits_NE
        bins_NE = ((spread_NE.detach().float() - self.lowest) / BIN_WIDTH).clamp(0, BINS - 1).long()
        experts = bins_NE.shape[1]
        bins_NE += torch.arange(experts, device=bins_NE.device) * BINS
        counts = torch.zeros(experts * BINS, dtype=torch.int32, device=bins_NE.device)
        real_NE = seen.real_N[:, None].int().expand_as(bins_NE)
        return counts.scatter_add_(0, bins_NE.reshape(-1), real_NE.reshape(-1)).unflatten(0, (experts, BINS))

    def update(self, bias_E: Tensor, load: RouterLoad) -> None:
        assert load.histogram_EH is not None
        quantiles_E = self._score(self._quantiles(load.histogram_EH)).to(bias_E.dtype)
        bias_E.lerp_(quantiles_E.mean() - quantiles_E, self.config.rate)

    def _quantiles(self, histogram_EH: Tensor) -> Tensor:
        """The quantile of every expert in the histogram's coordinate, linear within a bin."""
        upto_EH = histogram_EH.cumsum(1)
        wanted_E1 = self.level * upto_EH[:, -1:].double()
        bin_E1 = (upto_EH < wanted_E1).sum(1, keepdim=True)
        inside_E1 = histogram_EH.gather(1, bin_E1)
        below_E1 = upto_EH.gather(1, bin_E1) - inside_E1
        share_E1 = (wanted_E1 - below_E1) / inside_E1.clamp(min=1)
        return self.lowest + (bin_E1 + share_E1)[:, 0] * BIN_WIDTH

    def _score(self, spread_E: Tensor) -> Tensor:
        return (
            spread_E.exp() if self.score == "softmax" else spread_E.sigmoid() if self.score == "sigmoid" else spread_E
        )
