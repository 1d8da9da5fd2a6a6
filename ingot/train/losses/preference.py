"""The loss terms of preferences: they compare whole answers, each marked by a number on its tokens.

A term of pairs is the mean over the step's pairs of a function of two scores, s_w of the chosen and s_l of the rejected answer:

    s(y) = Σ_t log p_t − log ref_t, or Σ_t log p_t without a reference; divided by |y| where the loss is length-normalised

over the tokens of the answer. What each function is stands in the class; settings that papers published are in post/algorithms/.
Streams: `chosen` and `rejected` carry the pair's number within the step, from 1, on the tokens of the answer and 0 elsewhere;
`reference_logprob` where there is a reference. Both answers of a pair must be in the same micro-batch.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from ingot.train.losses.terms import LossTerm, Scored
from ingot.workspace.errors import CheckFailed

WITH_REFERENCE = ("chosen", "rejected", "reference_logprob")
WITHOUT_REFERENCE = ("chosen", "rejected")


@dataclass(frozen=True)
class PairTerm(LossTerm):
    """A loss of pairs: a subclass says what one pair loses, given the scores of its two answers."""

    by_token = False
    beta: float = 0.1
    length_normalised: bool = False
    name: str = "preference"
    coefficient: float = 1.0
    needs: tuple[str, ...] = WITH_REFERENCE

    @abstractmethod
    def losses(self, chosen: Tensor, rejected: Tensor) -> Tensor:
        """The loss of every pair."""

    def denominator(self, streams: Mapping[str, Tensor]) -> Tensor:
        pairs, others = streams["chosen"].unique(), streams["rejected"].unique()
        if not torch.equal(pairs[pairs > 0], others[others > 0]):
            raise CheckFailed("a preference pair was split over two micro-batches", fix="pack both halves together")
        return (pairs > 0).sum().float()

    def numerator(self, scored: Scored) -> tuple[Tensor, dict[str, Tensor]]:
        values = scored.logprobs
        if "reference_logprob" in self.needs:
            values = values - scored.streams["reference_logprob"]
        chosen, rejected = (
            by_answer(values, scored.streams[name], mean=self.length_normalised) for name in ("chosen", "rejected")
        )
        margin = self.beta * (chosen - rejected)
        logged = {
            "preference_accuracy": (margin > 0).float().sum().detach(),
            "margin": margin.sum().detach(),
            "chosen_reward": self.beta * chosen.sum().detach(),
            "rejected_reward": self.beta * rejected.sum().detach(),
        }
        return self.losses(chosen, rejected).sum(), logged


def by_answer(values: Tensor, number: Tensor, *, mean: bool) -> Tensor:
    """The sum (or mean) of `values` over the tokens of every answer, in the order of the answers' numbers."""
    member = number > 0
    answers, index = number[member].unique(return_inverse=True)
    totals = torch.zeros(len(answers), dtype=values.dtype, device=values.device)
    totals = totals.index_add(0, index, values[member])
    return totals / torch.bincount(index, minlength=len(answers)) if mean else totals


@dataclass(frozen=True)
class Preference(PairTerm):
    """Direct preference optimisation (arXiv 2305.18290), length-normalised by default (as in Tülu 3 and OLMo 3).

    −log σ(m),  m = β (s_w − s_l)

    If labels are swapped with chance ε: −(1 − ε) log σ(m) − ε log σ(−m) is conservative, and
    [−(1 − ε) log σ(m) + ε log σ(−m)] / (1 − 2ε) is `robust`: its expectation over the swaps is the loss without them.
    """

    beta: float = 5.0
    length_normalised: bool = True
    label_smoothing: float = 0.0
    robust: bool = False

    def losses(self, chosen: Tensor, rejected: Tensor) -> Tensor:
        margin, swapped = self.beta * (chosen - rejected), self.label_smoothing
        if self.robust:
            clean, flipped = -(1 - swapped) * logsigmoid(margin), swapped * logsigmoid(-margin)
            return (clean + flipped) / (1 - 2 * swapped)
        if swapped:
            return -(1 - swapped) * logsigmoid(margin) - swapped * logsigmoid(-margin)
        return -logsigmoid(margin)


@dataclass(frozen=True)
class IdentityPreference(PairTerm):
    """(s_w − s_l − 1/(2β))²: identity preference optimisation (arXiv 2310.12036, equation 17; its τ is β)."""

    length_normalised: bool = True

    def losses(self, chosen: Tensor, rejected: Tensor) -> Tensor:
        return (chosen - rejected - 1 / (2 * self.beta)).square()


@dataclass(frozen=True)
class AnchoredZero(PairTerm):
    """1 − σ(β s_w) + σ(β s_l): the chosen answer gets likelier, the rejected one less likely (arXiv 2408.06266, equation 7)."""

    def losses(self, chosen: Tensor, rejected: Tensor) -> Tensor:
        return 1 - torch.sigmoid(self.beta * chosen) + torch.sigmoid(self.beta * rejected)


@dataclass(frozen=True)
class AnchoredDown(PairTerm):
    """σ(β s_w) + 1 − σ(β (s_w − s_l)): both get less likely, the rejected one more so (arXiv 2408.06266, equation 8)."""

    def losses(self, chosen: Tensor, rejected: Tensor) -> Tensor:
        return torch.sigmoid(self.beta * chosen) + 1 - torch.sigmoid(self.beta * (chosen - rejected))


@dataclass(frozen=True)
class SimplePreference(PairTerm):
    """−log σ(β (s_w − s_l) − γ), s the mean log-probability: SimPO (arXiv 2405.14734); γ is `target_margin`."""

    beta: float = 2.0
    length_normalised: bool = True
    target_margin: float = 1.0
    needs: tuple[str, ...] = WITHOUT_REFERENCE

    def losses(self, chosen: Tensor, rejected: Tensor) -> Tensor:
        return -logsigmoid(self.beta * (chosen - rejected) - self.target_margin)


@dataclass(frozen=True)
class OddsRatio(PairTerm):
    """−β log σ(log odds_w − log odds_l), odds = e^s / (1 − e^s), s the mean log-probability (ORPO, arXiv 2403.07691)."""

    length_normalised: bool = True
    needs: tuple[str, ...] = WITHOUT_REFERENCE

    def losses(self, chosen: Tensor, rejected: Tensor) -> Tensor:
        return -self.beta * logsigmoid(log_odds(chosen) - log_odds(rejected))


def log_odds(log_probability: Tensor) -> Tensor:
    """log(p / (1 − p)) from log p, exact where p is close to 1: log(1 − p) = log(−expm1(log p)). Finite where p is 1."""
    log_probability = log_probability.clamp(max=-torch.finfo(log_probability.dtype).eps)
    return log_probability - torch.log(-torch.expm1(log_probability))


@dataclass(frozen=True)
class KahnemanTversky(LossTerm):
    """KTO (arXiv 2402.01306): the mean over answers, desirable or not, of how far each is from its side of a reference point z.

    desirable    λ_D (1 − σ(β (s − z)))
    undesirable  λ_U (1 − σ(β (z − s)))

    Streams: `chosen` marks desirable and `rejected` undesirable answers by their number within the step, `reference_logprob`,
    and `reference_point`, z, on their tokens (post/data/pairs/unpaired.py computes it from the whole step).
    """

    by_token = False
    beta: float = 0.1
    desirable_weight: float = 1.0
    undesirable_weight: float = 1.0
    name: str = "preference"
    coefficient: float = 1.0
    needs: tuple[str, ...] = (*WITH_REFERENCE, "reference_point")

    def denominator(self, streams: Mapping[str, Tensor]) -> Tensor:
        return _count(streams["chosen"]) + _count(streams["rejected"])

    def numerator(self, scored: Scored) -> tuple[Tensor, dict[str, Tensor]]:
        values = scored.logprobs - scored.streams["reference_logprob"]
        total = values.new_zeros(())
        logged = {name: values.new_zeros(()) for name in ("preference_accuracy", "margin", "reference_point")}
        for name, side, weight in (
            ("chosen", 1, self.desirable_weight),
            ("rejected", -1, self.undesirable_weight),
        ):
            number = scored.streams[name]
            point = by_answer(scored.streams["reference_point"], number, mean=True)
            margin = side * self.beta * (by_answer(values, number, mean=False) - point)
            total = total + weight * (1 - torch.sigmoid(margin)).sum()
            logged["preference_accuracy"] += (margin > 0).to(values.dtype).sum().detach()
            logged["margin"] += margin.sum().detach()
            logged["reference_point"] += point.sum().detach()
        return total, logged


def _count(number: Tensor) -> Tensor:
    return (number.unique() > 0).sum().float()
