"""The terms a loss is made of: sums over scored tokens, each divided by its own global denominator.

    loss = Σ_terms  coefficient · (Σ over all scored tokens of the step) / (denominator of the whole step)

The denominator is counted over every micro-batch (and every rank) of the step before the first backward pass, so the loss
and its gradient do not depend on packing, on micro-batching, on the order of sequences or on the number of processes.
What the streams mean is decided where they are stamped (post/, for SFT, DPO, GRPO and distillation).

What a term can read of a scored token:

    logprobs            log p of the token                                                              always
    streams             the numbers it was stamped with                                                 `needs`
    log_normalisers     log Σ e^logit                                                                   `wants`
    ahead               log p of tokens further ahead (multi-token prediction)                          `wants`
    heads               one number from each head on the hidden state (model config: `heads`)           `heads`
    measured            any function of the token's whole distribution: entropy, KL to a teacher        `measure`
                        … and of the log-probabilities of its neighbours                                `neighbours`

`measure` gets the logits of a chunk of tokens at a time, and again in the backward pass: no [tokens, vocabulary] tensor is
kept. It must treat every token by itself, so that chunks, packing and micro-batches cannot change it, and context parallelism
may cut a row anywhere; what it needs of other tokens' log-probabilities, `neighbours` gathers first. A numerator that is no sum
over single tokens (a preference compares two answers) says `by_token = False`: context parallelism refuses it, and packing
keeps together what belongs together.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from ingot.model.transformer import Transformer
from ingot.train.config import LanguageConfig


@dataclass(frozen=True)
class Ahead:
    """One step of multi-token prediction: log-probabilities of tokens further ahead, and the weights of these tokens."""

    logprobs: Tensor
    weights: Tensor


@dataclass(frozen=True)
class Scored:
    """The scored tokens of a micro-batch, flattened: n log-probabilities and n values of each stream; the rest if a term asks."""

    logprobs: Tensor
    streams: Mapping[str, Tensor]
    log_normalisers: Tensor | None = None
    ahead: tuple[Ahead, ...] = ()
    rows: Tensor | None = None  # [n]: the row of the batch that each token is in
    loss: Tensor | None = (
        None  # the whole loss, if it was computed with its gradient (fused_head.py); the rest is for the log
    )
    heads: Mapping[str, Tensor] = field(default_factory=dict)  # [n] each
    measured: Mapping[str, Tensor] = field(default_factory=dict)  # [n] each


@dataclass(frozen=True)
class Distributions:
    """A chunk of c scored tokens, with what the model predicts at each: what `LossTerm.measure` reads."""

    logits: Tensor  # [c, vocabulary] in float32, divided by the temperature
    targets: Tensor  # [c]
    streams: Mapping[str, Tensor]  # [c] each
    vectors: Mapping[str, Tensor]  # [c, …] each
    temperature: float  # what the logits were divided by


@dataclass(frozen=True)
class Factors:
    """Sum = Σ_t logprob_t · log p_t + normaliser_t · (log Z_t)² + the mean over the steps ahead of Σ_t ahead · w_t log p_t."""

    logprob: Tensor | None = None
    normaliser: Tensor | None = None
    ahead: float = 0.0


class LossTerm(ABC):
    """One summand of the loss. `needs` are the streams it reads, `wants` the further fields of Scored, `heads` those it reads."""

    name: str
    coefficient: float = 1.0
    needs: tuple[str, ...]
    wants: tuple[Literal["log_normalisers", "ahead"], ...] = ()
    heads: tuple[str, ...] = ()
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

    def measure(self, tokens: Distributions) -> dict[str, Tensor]:
        """Numbers [c] of a chunk's tokens from their distributions, which the numerator finds in `scored.measured`.

        Two terms that measure under one name must mean the same by it.
        """
        return {}

    def neighbours(self, logprobs: Tensor, streams: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Numbers [n] made of the log-probabilities of all scored tokens, which `measure` finds in `tokens.vectors`.

        Gradients flow through them. The head is run once more for this; a term with it says `by_token = False`.
        """
        return {}


@dataclass(frozen=True)
class Wants:
    """What the terms of a loss read beside log-probabilities and streams."""

    log_normalisers: bool = False
    ahead: bool = False
    heads: tuple[str, ...] = ()
    measures: tuple[Callable[[Distributions], dict[str, Tensor]], ...] = ()
    neighbours: tuple[Callable[[Tensor, Mapping[str, Tensor]], dict[str, Tensor]], ...] = ()

    @classmethod
    def of(cls, terms: Sequence[LossTerm]) -> Wants:
        """Those of all terms."""
        wants = {want for term in terms for want in term.wants}
        heads = tuple(dict.fromkeys(head for term in terms for head in term.heads))
        measures = tuple(term.measure for term in terms if type(term).measure is not LossTerm.measure)
        neighbours = tuple(term.neighbours for term in terms if type(term).neighbours is not LossTerm.neighbours)
        return cls("log_normalisers" in wants, "ahead" in wants, heads, measures, neighbours)


NOTHING_MORE = Wants()


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
class UntemperedCrossEntropy(LossTerm):
    """Cross-entropy at temperature 1, whatever temperature the other terms' log-probabilities have. Stream `weight`."""

    name: str = "cross_entropy"
    coefficient: float = 1.0
    needs: tuple[str, ...] = ("weight",)

    def denominator(self, streams: Mapping[str, Tensor]) -> Tensor:
        return streams["weight"].sum()

    def numerator(self, scored: Scored) -> tuple[Tensor, dict[str, Tensor]]:
        return (scored.streams["weight"] * scored.measured["untempered_loss"]).sum(), {}

    def measure(self, tokens: Distributions) -> dict[str, Tensor]:
        logits = tokens.logits * tokens.temperature
        return {"untempered_loss": torch.nn.functional.cross_entropy(logits, tokens.targets, reduction="none")}


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


def language_terms(model: Transformer, config: LanguageConfig) -> list[LossTerm]:
    """The terms of pre-training and fine-tuning; one with coefficient 0 is left out by the trainer."""
    terms: list[LossTerm] = [CrossEntropy(), ZLoss(coefficient=config.z_loss)]
    if model.config.multi_token is not None:
        terms.append(MultiTokenPrediction(coefficient=model.config.multi_token.weight))
    return terms
