"""How far the policy has moved from where the stage began: KL(π ‖ start) a token, from answers of the policy.

    k3 = e^−d − 1 + d,   d = log π − log start        never negative, and right on average where π drew the tokens
                                                      (J. Schulman, "Approximating KL divergence")

The weights of the start wait in the host's memory, each process's shards of them, and change places with the policy's while it is
measured. With adapters the start is the model without them, and with a reference that is never replaced it is the reference:
neither needs a copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from ingot.envs.episode import Episode
from ingot.model.lora import adapters_off
from ingot.post.rl.stamping import Rows
from ingot.post.scorer import Scorer
from ingot.train.reference import KeptWeights

ANSWERS = 64  # at most, that are measured


class StartPolicy:
    """The policy with which the stage begins, which is the policy of now; `reference` is another model that stays so for good."""

    def __init__(self, policy: Scorer, reference: Scorer | None) -> None:
        self.policy, self.reference = policy, reference
        apart = reference is None and policy.model.lora is None
        self.kept = KeptWeights(policy.model) if apart else None

    @contextmanager
    def scorer(self) -> Iterator[Scorer]:
        """What scores as it does."""
        if self.reference is not None:
            yield self.reference
            return
        with adapters_off(self.policy.model) if self.kept is None else self.kept.in_place():
            yield self.policy


def measured(episodes: Sequence[Episode]) -> list[Episode]:
    """Some of the answers, from all of the tasks."""
    return list(episodes[:: -(-len(episodes) // ANSWERS)])


def divergence(episodes: Sequence[Episode], policy: Rows, start: Rows) -> float:
    """The mean of k3 over sampled tokens; 0 without any."""
    gaps = [
        here - there
        for each, *rows in zip(episodes, policy, start, strict=True)
        for here, there, sampled in zip(*rows, each.sampled(), strict=True)
        if sampled
    ]
    gap = torch.tensor(gaps or [0.0], dtype=torch.float64)
    return float((torch.expm1(-gap) + gap).mean())
