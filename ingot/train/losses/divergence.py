"""The loss terms of distillation: how far the student's distribution is from a teacher's, token by token.

    β = 0        KL(teacher ‖ student) = Σ_v t_v (log t_v − log s_v)                 covers all that the teacher may say
    β = 1        KL(student ‖ teacher)                                               keeps to what the teacher finds likely
    between      β KL(teacher ‖ M) + (1 − β) KL(student ‖ M),   M = β teacher + (1 − β) student

(generalised Jensen–Shannon divergence: GKD, Agarwal et al., arXiv 2306.13649, equation 1). The loss jumps at both ends: as β → 0
the divergence between falls to 0 like β · KL(teacher ‖ student), and β = 0 is the KL itself.

The teacher is there whole, as hidden states that its own head turns into logits a chunk at a time, or as its k likeliest tokens.
The latter are compared renormalised, or with one more outcome for all other tokens together (`tail`): without it the student
learns nothing about how much of its probability lies outside, and k = 1 teaches nothing at all.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from ingot.train.losses.terms import Distributions, LossTerm, Scored

NEVER = -1e4  # log-probability of an outcome that cannot be: its exponential is 0, and 0 · NEVER is a number
MOST = -1e-7  # log-probability of all k tokens together, at most: something is left for the tail
STATES = "teacher_states"
"""Vectors with the hidden states of teacher NAME are called `teacher_states/NAME`."""


def generalised_jsd(student_CS: Tensor, teacher_CS: Tensor, beta: float) -> Tensor:
    """The divergence [C] of each token from log-probabilities of the same S outcomes."""
    if beta == 0:
        return _kl(teacher_CS, student_CS)
    if beta == 1:
        return _kl(student_CS, teacher_CS)
    share = torch.tensor(beta, dtype=student_CS.dtype, device=student_CS.device)
    mixture_CS = torch.logaddexp(student_CS + torch.log1p(-share), teacher_CS + share.log())
    return beta * _kl(teacher_CS, mixture_CS) + (1 - beta) * _kl(student_CS, mixture_CS)


def _kl(p_CS: Tensor, q_CS: Tensor) -> Tensor:
    """KL(p ‖ q) from log-probabilities."""
    return (p_CS.exp() * (p_CS - q_CS)).sum(dim=-1)


def with_tail(logprobs_CK: Tensor) -> Tensor:
    """[C, K + 1]: log of what is left of 1 after the K outcomes."""
    together_C1 = logprobs_CK.logsumexp(dim=-1, keepdim=True).clamp(max=MOST)
    return torch.cat((logprobs_CK, torch.log(-torch.expm1(together_C1))), dim=-1)


@dataclass(frozen=True)
class Divergence(LossTerm):
    """Σ_t divergence_t / (tokens of answers). Streams: `response_mask`, `sampled_logprob` (0 on tokens that nobody sampled)."""

    beta: float = 1.0
    name: str = "teacher_divergence"
    coefficient: float = 1.0
    needs: tuple[str, ...] = ("response_mask", "sampled_logprob")
    counted: ClassVar[str] = "response_mask"  # the stream that is 1 where a divergence counts

    @abstractmethod
    def pair(self, tokens: Distributions) -> tuple[Tensor, Tensor]:
        """Log-probabilities [C, S] of the same outcomes by student and teacher."""

    def measure(self, tokens: Distributions) -> dict[str, Tensor]:
        return {self.name: generalised_jsd(*self.pair(tokens), self.beta)}

    def denominator(self, streams: Mapping[str, Tensor]) -> Tensor:
        return streams[self.counted].sum()

    def numerator(self, scored: Scored) -> tuple[Tensor, dict[str, Tensor]]:
        mask, sampled = scored.streams[self.counted], scored.streams["sampled_logprob"]
        log_ratio = torch.where(sampled != 0, scored.logprobs.detach() - sampled, 0) * mask
        ratio = log_ratio.exp()
        logged = {  # as PolicyGradient does: the trainer must see the sampler's probabilities
            "ratio_mean": (ratio * mask).sum(),
            "sampler_divergence": ((ratio - 1 - log_ratio) * mask).sum(),
        }
        return (mask * scored.measured[self.name]).sum(), logged


@dataclass(frozen=True)
class FullDivergence(Divergence):
    """Over the whole vocabulary. `teachers` are the heads from hidden states to logits; a batch has the states of one of them."""

    teachers: Mapping[str, Callable[[Tensor], Tensor]] = field(default_factory=dict)

    def pair(self, tokens: Distributions) -> tuple[Tensor, Tensor]:
        (name,) = (name for name in self.teachers if f"{STATES}/{name}" in tokens.vectors)
        with torch.no_grad():
            logits_CV = self.teachers[name](tokens.vectors[f"{STATES}/{name}"])
            teacher_CV = (logits_CV / tokens.temperature).log_softmax(dim=-1).to(tokens.logits.dtype)
        return tokens.logits.log_softmax(dim=-1), teacher_CV


@dataclass(frozen=True)
class TopKDivergence(Divergence):
    """Over the teacher's k most likely tokens: vectors `teacher_tokens` and `teacher_logprobs` (−inf where there are fewer)."""

    tail: bool = True

    def pair(self, tokens: Distributions) -> tuple[Tensor, Tensor]:
        teacher_CK, ids_CK = tokens.vectors["teacher_logprobs"], tokens.vectors["teacher_tokens"]
        there_CK = teacher_CK > NEVER
        student_CK = tokens.logits.gather(-1, ids_CK.long()) - tokens.logits.logsumexp(dim=-1, keepdim=True)
        both = [torch.where(there_CK, each, NEVER) for each in (student_CK, teacher_CK.to(student_CK.dtype))]
        student, teacher = (with_tail(each) if self.tail else each.log_softmax(dim=-1) for each in both)
        return student, teacher
