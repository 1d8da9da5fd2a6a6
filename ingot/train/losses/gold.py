"""The loss term of distillation across tokenizers: GOLD (Patiño et al. 2025) with ULD (Boizard et al., arXiv 2402.12030).

A group is a run of the student's tokens and a run of the teacher's that spell the same bytes (tokens/alignment.py). On each side
its distributions are merged into one over that side's vocabulary, times the probabilities of the tokens that were written:

    observed     m(v) = p(v | before the group) · Π p(y_i | …) over the group's later tokens
    bayesian     m(v) = p(v | all but the group's last token) · Π p(y_i | …) over the group's earlier tokens

For the token y that is there, m(y) is the probability of the group's bytes either way. With M pairs of tokens that mean the same
to both, and U the others of each vocabulary,

    loss of a group = w · D_β(m_student on M ‖ m_teacher on M) + (1 − w) · Σ_i |sort(m_student on U)_i − sort(m_teacher on U)_i|

D_β is that of divergence.py, the shorter list of U has zeros at its end, and w = |M| / |vocabulary of the teacher| unless it is
given. With one tokenizer on both sides every group is a token, w is 1, and the loss is that of `FullDivergence`.

Both distributions are those that predict the group. TRL's "observed" reads them one position later; its "bayesian" does not.

Streams: `group_start` is 1 on the first token of a group (and of what is in no group), `group_base` 1 on the token whose
distribution is taken. Vectors at that token: the teacher's hidden state, and `teacher_rest`, log Π of its other tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from ingot.train.losses.divergence import STATES, Divergence, generalised_jsd
from ingot.train.losses.terms import Distributions

REST, STUDENT_REST = "teacher_rest", "student_rest"


@dataclass(frozen=True)
class Shared:
    """The tokens of two vocabularies that mean the same, pair by pair, and those of each that the other lacks."""

    student: Tensor
    teacher: Tensor
    student_alone: Tensor
    teacher_alone: Tensor

    @classmethod
    def of(cls, pairs: list[tuple[int, int]], student_size: int, teacher_size: int) -> Shared:
        """From pairs of ids."""
        both = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2)
        alone = [torch.ones(size, dtype=torch.bool) for size in (student_size, teacher_size)]
        for mask, ids in zip(alone, both.T, strict=True):
            mask[ids] = False
        return cls(both[:, 0], both[:, 1], *(mask.nonzero().flatten() for mask in alone))

    @classmethod
    def whole(cls, size: int) -> Shared:
        """One vocabulary on both sides."""
        return cls.of([(id, id) for id in range(size)], size, size)

    @property
    def share(self) -> float:
        """How much of the teacher's vocabulary the student has: the weight of matched tokens."""
        return len(self.teacher) / (len(self.teacher) + len(self.teacher_alone))

    def to(self, device: torch.device) -> Shared:
        """The same on another device."""
        parts = self.student, self.teacher, self.student_alone, self.teacher_alone
        return Shared(*(each.to(device) for each in parts))


def sorted_distance(student_CS: Tensor, teacher_CT: Tensor) -> Tensor:
    """ULD: the L1 distance [C] of probabilities in falling order, whatever tokens they belong to."""
    width = max(student_CS.shape[-1], teacher_CT.shape[-1])
    lists = (each.sort(dim=-1, descending=True).values for each in (student_CS, teacher_CT))
    student, teacher = (pad(each, (0, width - each.shape[-1])) for each in lists)
    return (student - teacher).abs().sum(dim=-1)


@dataclass(frozen=True)
class GoldDivergence(Divergence):
    """Σ over groups of the loss above / groups. `matched_weight` None: the share of the teacher's vocabulary that is matched."""

    needs: tuple[str, ...] = ("response_mask", "sampled_logprob", "group_start", "group_base")
    counted: ClassVar[str] = "group_base"
    by_token: bool = False
    matched_weight: float | None = None
    teachers: Mapping[str, Callable[[Tensor], Tensor]] = field(default_factory=dict)
    shared: Mapping[str, Shared] = field(default_factory=dict)

    def neighbours(self, logprobs: Tensor, streams: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """log Π of a group's tokens besides the base, at every token of the group."""
        group = streams["group_start"].cumsum(0).long()  # padding and prompts have mask 0 and add nothing to it
        others = logprobs * streams["response_mask"].ne(0) * (1 - streams["group_base"])
        sums = torch.zeros(len(logprobs) + 1, dtype=logprobs.dtype, device=logprobs.device)
        return {STUDENT_REST: sums.index_add(0, group, others)[group]}

    def measure(self, tokens: Distributions) -> dict[str, Tensor]:
        (name,) = (name for name in self.teachers if f"{STATES}/{name}" in tokens.vectors)
        student_CS, teacher_CT = self.pair(tokens)
        shared = self.shared[name].to(student_CS.device)
        weight = shared.share if self.matched_weight is None else self.matched_weight
        matched = student_CS[:, shared.student], teacher_CT[:, shared.teacher]
        alone = student_CS[:, shared.student_alone].exp(), teacher_CT[:, shared.teacher_alone].exp()
        loss_C = weight * generalised_jsd(*matched, self.beta)
        if weight < 1:
            loss_C = loss_C + (1 - weight) * sorted_distance(*alone)
        return {self.name: loss_C}

    def pair(self, tokens: Distributions) -> tuple[Tensor, Tensor]:
        """log m of student and teacher, each over its own vocabulary."""
        (name,) = (name for name in self.teachers if f"{STATES}/{name}" in tokens.vectors)
        student_CS = tokens.logits.log_softmax(dim=-1) + tokens.vectors[STUDENT_REST][:, None]
        with torch.no_grad():
            logits_CT = self.teachers[name](tokens.vectors[f"{STATES}/{name}"]) / tokens.temperature
            teacher_CT = logits_CT.log_softmax(dim=-1).to(student_CS.dtype)
        return student_CS, teacher_CT + tokens.vectors[REST][:, None].to(student_CS.dtype)
