"""The loss terms of reward models: they read the head `reward` at the last token of each answer.

A batch has no position that reads the last token of a sequence, so the maker of the sequences appends one token that is never
learnt (post/reward_sequences.py): the state that would predict it is the state at the end of the answer, and the streams that
stand on it are about the answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from ingot.model.transformer import REWARD_HEAD
from ingot.train.losses.terms import LossTerm, Scored
from ingot.workspace.errors import CheckFailed


@dataclass(frozen=True)
class BradleyTerry(LossTerm):
    """The better answer of a pair should earn more (Bradley and Terry 1952; InstructGPT, arXiv 2203.02155).

        −log σ(r_w − r_l − m)  +  c (r_w + r_l)²        the mean over pairs

    m is the margin of a pair (Llama 2, arXiv 2307.09288), 0 if it has none. Pairs fix only differences of rewards; c > 0 centres
    them at 0 (Eisenstein et al., arXiv 2312.09244). Streams, at the end of answers: `chosen` and `rejected` carry the pair's
    number within the step, from 1; `margin`. Both answers of a pair must be in the same micro-batch.
    """

    by_token = False
    centring: float = 0.0
    name: str = "bradley_terry"
    coefficient: float = 1.0
    needs: tuple[str, ...] = ("chosen", "rejected", "margin")
    heads: tuple[str, ...] = (REWARD_HEAD,)

    def denominator(self, streams: Mapping[str, Tensor]) -> Tensor:
        chosen, rejected = (streams[name][streams[name] > 0].sort().values for name in ("chosen", "rejected"))
        if not torch.equal(chosen, rejected):
            raise CheckFailed("a pair was split over two micro-batches", fix="pack both answers together")
        return torch.tensor(float(len(chosen)))

    def numerator(self, scored: Scored) -> tuple[Tensor, dict[str, Tensor]]:
        (chosen, margin), (rejected, _) = (self._in_order(scored, name) for name in ("chosen", "rejected"))
        difference = chosen - rejected
        loss = -logsigmoid(difference - margin) + self.centring * (chosen + rejected).square()
        logged = {
            "reward_accuracy": (difference > 0).float().sum(),
            "reward_margin": difference.sum().detach(),
            "reward_mean": (chosen + rejected).sum().detach() / 2,
        }
        return loss.sum(), logged

    def _in_order(self, scored: Scored, name: str) -> tuple[Tensor, Tensor]:
        """Rewards and margins of the chosen, or of the rejected answers, in the order of the pairs' numbers."""
        numbers = scored.streams[name]
        places = numbers.nonzero().flatten()
        places = places[numbers[places].argsort()]
        return scored.heads[REWARD_HEAD][places], scored.streams["margin"][places]


@dataclass(frozen=True)
class Regression(LossTerm):
    """Σ (r − score)² / answers: rewards in the units of a rubric. Streams, at the end of answers: `rated` (1), `score`."""

    name: str = "regression"
    coefficient: float = 1.0
    needs: tuple[str, ...] = ("rated", "score")
    heads: tuple[str, ...] = (REWARD_HEAD,)

    def denominator(self, streams: Mapping[str, Tensor]) -> Tensor:
        return streams["rated"].sum()

    def numerator(self, scored: Scored) -> tuple[Tensor, dict[str, Tensor]]:
        error = (scored.heads[REWARD_HEAD] - scored.streams["score"]) * scored.streams["rated"]
        return error.square().sum(), {"absolute_error": error.abs().sum().detach()}
