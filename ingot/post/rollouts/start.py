"""How far the policy has moved from where the stage began: KL(π ‖ start) a token, from answers of the policy.

    k3 = e^−d − 1 + d,   d = log π − log start        never negative, and right on average where π drew the tokens
                                                      (J. Schulman, "Approximating KL divergence")

The weights of the start wait in the host's memory and visit the device for one pass at a time. With adapters the start is the
model without them, and with a reference that is never replaced it is the reference: neither needs a copy.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from ingot.envs.episode import Episode
from ingot.model.lora import adapters_off
from ingot.model.transformer import Transformer
from ingot.post.rollouts.stamping import Rows

ANSWERS = 64  # at most, that are measured


class StartPolicy:
    """The policy with which the stage began. `whole` has its weights now; `kept` is another model that has them for good."""

    def __init__(self, whole: Transformer, kept: Transformer | None) -> None:
        self.whole, self.kept = whole, kept
        self.waiting = None
        if kept is None and whole.lora is None:
            self.waiting = copy.deepcopy(whole).requires_grad_(False).to("cpu")

    @contextmanager
    def model(self) -> Iterator[Transformer]:
        """On the device of the policy."""
        if self.kept is not None:
            yield self.kept
        elif self.waiting is None:
            with adapters_off(self.whole):
                yield self.whole
        else:
            try:
                yield self.waiting.to(self.whole.embedding.weight.device)
            finally:
                self.waiting.to("cpu")


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
