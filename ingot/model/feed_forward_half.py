"""The second half of the usual layer by the loops of a training run on a CPU: stages of a plan (halves.py).

    y = x + W_down swiglu([W_gate | W_up] norm(x))

The sum with x is part of the last product, and in the backward pass of the gradient of the norm.

Shapes: N tokens, D width, F inner width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ingot.model.feed_forward.gated_team import gate_backward, gate_forward
from ingot.model.norm_team import norm_backward, norm_forward
from ingot.model.product import project, project_back
from ingot.model.team import Place, Stage


@dataclass(frozen=True)
class FeedForwardHalf:
    """Weights: gain [D], [W_gate | W_up] [2F, D], W_down [D, F]."""

    tokens: int
    width: int
    inner: int
    epsilon: float

    def weights(self) -> int:
        return 3

    def kept(self) -> Sequence[int]:
        """The norm [N, D], [gate | up] [N, 2F], what they become [N, F]."""
        return self.tokens * self.width, 2 * self.tokens * self.inner, self.tokens * self.inner

    own = kept  # the gradients of these

    def forward(self, x: Place, weights: Sequence[Place], kept: Sequence[Place], y: Place) -> list[Stage]:
        (gain, gate_up, down), (normed, projected, gated) = weights, kept
        return [
            norm_forward(x, gain, normed, (self.tokens, self.width), self.epsilon, y),
            project(normed, gate_up, projected, (self.tokens, self.width, 2 * self.inner)),
            gate_forward(projected, gated, self.tokens, self.inner),
            project(gated, down, y, (self.tokens, self.inner, self.width), adds=True),
        ]

    def backward(
        self,
        x: Place,
        weights: Sequence[Place],
        kept: Sequence[Place],
        own: Sequence[Place],
        up: Place,
        d_x: Place,
        grads: Sequence[Place | None],
    ) -> list[Stage]:
        (gain, gate_up, down), (normed, projected, gated) = weights, kept
        (d_gain, d_gate_up, d_down), (d_normed, d_projected, d_gated) = grads, own
        assert d_gain is not None
        return [
            *project_back(up, gated, down, d_gated, d_down, (self.tokens, self.inner, self.width)),
            gate_backward(projected, d_gated, d_projected, self.tokens, self.inner),
            *project_back(d_projected, normed, gate_up, d_normed, d_gate_up, (self.tokens, self.width, 2 * self.inner)),
            norm_backward(x, gain, d_normed, d_x, d_gain, (self.tokens, self.width), self.epsilon, up),
        ]
