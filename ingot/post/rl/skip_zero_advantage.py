"""Leaves out of the passes what teaches nothing: answers whose advantage is 0 on every token.

    loss = −Σ_t a_t c_t f(r_t, A_t) / N,        f(r, 0) = 0,        f(r, k A) = k f(r, A)  for k > 0

Where all answers to a task earn the same, none has an advantage: they cost passes through the model and move nothing. They still
count in N. So the advantages of the others are multiplied by N' / N, where N' is what is left of N, and dividing by N' gives the
same loss and the same gradient. What a pass measures (entropy, ratios, divergence) is then a mean over the answers that pass.

It needs a surrogate in proportion to A, and nothing beside it that moves the model: no divergence from a reference in the loss,
no value head, no router that balances its load over all tokens, no part of the model with a loss of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ingot.model.feed_forward.mixture import MixtureOfExperts
from ingot.model.record import reported_losses
from ingot.model.transformer import Transformer
from ingot.post.algorithm import RlAlgorithm
from ingot.post.rl.objective import PolicyOptimization
from ingot.tokens.batch import TokenSequence
from ingot.train.losses.policy_gradient import Aggregation


def learns_by_advantage_alone(algorithm: RlAlgorithm, model: Transformer) -> bool:
    """Whether a token without an advantage moves nothing."""
    if not isinstance(algorithm, PolicyOptimization) or not algorithm.by_advantage_alone:
        return False
    routed = any(isinstance(part, MixtureOfExperts) for part in model.modules())
    return not routed and not reported_losses(model)


def without_silent(sequences: Sequence[TokenSequence], mean: Aggregation) -> list[TokenSequence]:
    """The sequences that have an advantage, with the loss of all; one of the others if there is none."""
    kept = [each for each in sequences if any(each.streams["advantage"])]
    if not kept:
        return [max(sequences, key=lambda each: sum(each.streams["response_mask"]))]
    share = _total(kept, mean) / _total(sequences, mean)
    return [each.with_stream("advantage", [share * value for value in each.streams["advantage"]]) for each in kept]


def _total(sequences: Sequence[TokenSequence], mean: Aggregation) -> float:
    """N of these sequences."""
    streams = {
        name: torch.tensor([value for each in sequences for value in each.streams[name]], dtype=torch.float64)
        for name in mean.needs()
    }
    return float(mean.total(streams))
