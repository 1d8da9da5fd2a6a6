"""The factors of a loss that is a sum over tokens known before the pass, so that loss and gradient can be fused.

    loss = Σ_t a_t log p_t + b_t (log Z_t)²  +  the steps ahead,        a = Σ_terms coefficient · factor / denominator

Cross-entropy, z-loss and multi-token prediction are such sums; a policy gradient is not: what multiplies its log-probabilities
depends on them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ingot.train.losses.terms import LossTerm


@dataclass(frozen=True)
class TokenFactors:
    """The terms of a step with their denominators."""

    terms: Sequence[LossTerm]
    denominators: Mapping[str, Tensor]

    def factors(self, streams: Mapping[str, Tensor], dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
        """a and b of the tokens whose streams these are; b is None where no term has log Z in it."""
        a: Tensor | None = None
        b: Tensor | None = None
        for term in self.terms:
            factors = term.factors(streams)
            assert factors is not None
            if factors.logprob is not None:
                scaled = factors.logprob.to(dtype) * self._scale(term)
                a = scaled if a is None else a + scaled
            if factors.normaliser is not None:
                scaled = factors.normaliser.to(dtype) * self._scale(term)
                b = scaled if b is None else b + scaled
        if a is None:
            a = torch.zeros_like(next(iter(streams.values())), dtype=dtype)
        return a, b

    def ahead(self, weights: Tensor, steps: int, dtype: torch.dtype) -> Tensor:
        """The factors of the tokens of one of `steps` steps ahead, whose weights these are."""
        total = torch.zeros((), dtype=dtype, device=weights.device)
        for term in self.terms:
            factors = term.factors({"weight": weights})
            assert factors is not None
            total = total + factors.ahead * self._scale(term)
        return weights.to(dtype) * total / steps

    def _scale(self, term: LossTerm) -> Tensor:
        return term.coefficient / self.denominators[term.name]


def has_token_factors(terms: Sequence[LossTerm], temperature: float) -> bool:
    """Whether the loss of these terms is known beforehand."""
    known = [term.factors for term in terms if type(term).factors is not LossTerm.factors]
    return len(known) == len(terms) and temperature == 1.0
