"""The first half of the usual layer by the loops of a training run on a CPU: stages of a plan (halves.py).

    y = x + W_out attend(rotate(W_qkv norm(x)))

The sum with x is part of the last product, and in the backward pass of the gradient of the norm.

Shapes: B rows, T tokens of a row, N = B·T, D width, H query heads, K key heads, W their width, R = W/2 turned pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ingot.model.mixers.attend_square import Heads, loops, square_stage
from ingot.model.norm_team import norm_backward, norm_forward
from ingot.model.positions.rope_team import turn_heads
from ingot.model.product import project, project_back
from ingot.model.team import Place, Stage


@dataclass(frozen=True)
class AttentionHalf:
    """Weights: gain [D], W_qkv [(H + 2K)W, D], W_out [D, HW]; cos and sin [B, 1, T, R], which get no gradient."""

    rows: int
    length: int
    width: int
    query_heads: int
    key_heads: int
    head_width: int
    interleaved: bool
    scale: float
    epsilon: float

    @property
    def tokens(self) -> int:
        return self.rows * self.length

    @property
    def turned_heads(self) -> int:
        return self.query_heads + self.key_heads

    @property
    def features(self) -> tuple[int, int, int]:
        """Of a token: [queries | keys | values], [queries | keys], queries."""
        heads = self.turned_heads + self.key_heads, self.turned_heads, self.query_heads
        return heads[0] * self.head_width, heads[1] * self.head_width, heads[2] * self.head_width

    def weights(self) -> int:
        return 5

    def own(self) -> Sequence[int]:
        """The gradients of all that is kept but lse."""
        return [self.tokens * each for each in (self.width, *self.features)]

    def kept(self) -> Sequence[int]:
        """The norm [N, D], [queries | keys | values], queries and keys turned, what is mixed [N, HW], lse [B, H, T]."""
        return [*self.own(), self.tokens * self.query_heads]

    def forward(self, x: Place, weights: Sequence[Place], kept: Sequence[Place], y: Place) -> list[Stage]:
        (gain, weight, output, cos, sin), (normed, projected, turned, mixed, lse) = weights, kept
        features, turning, mixing = self.features
        heads = [*self._heads(turned, projected), *[self._placed(mixed, 0, mixing)] * 5]
        return [
            norm_forward(x, gain, normed, (self.tokens, self.width), self.epsilon, y),
            project(normed, weight, projected, (self.tokens, self.width, features)),
            self._turn((projected, features), (turned, turning), cos, sin, back=False),
            square_stage(loops().forward, heads, lse, self._shape(), self.scale),
            project(mixed, output, y, (self.tokens, mixing, self.width), adds=True),
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
        (gain, weight, output, cos, sin), (normed, projected, turned, mixed, lse) = weights, kept
        (d_gain, d_weight, d_output, *_), (d_normed, d_projected, d_turned, d_mixed) = grads, own
        assert d_gain is not None
        features, turning, mixing = self.features
        heads = [*self._heads(turned, projected), *(self._placed(each, 0, mixing) for each in (mixed, d_mixed))]
        heads += self._heads(d_turned, d_projected)
        return [
            *project_back(up, mixed, output, d_mixed, d_output, (self.tokens, mixing, self.width)),
            square_stage(loops().backward, heads, lse, self._shape(), self.scale),
            self._turn((d_turned, turning), (d_projected, features), cos, sin, back=True),
            *project_back(d_projected, normed, weight, d_normed, d_weight, (self.tokens, self.width, features)),
            norm_backward(x, gain, d_normed, d_x, d_gain, (self.tokens, self.width), self.epsilon, up),
        ]

    def _shape(self) -> tuple[int, int, int, int, int]:
        return self.rows, self.query_heads, self.key_heads, self.length, self.head_width

    def _turn(
        self, source: tuple[Place, int], target: tuple[Place, int], cos: Place, sin: Place, *, back: bool
    ) -> Stage:
        shape = (self.tokens, self.turned_heads, self.head_width)
        return turn_heads(source, target, cos, sin, shape, interleaved=self.interleaved, back=back)

    def _heads(self, turned: Place, projected: Place) -> list[Heads]:
        """Where queries and keys, turned, and values lie."""
        features, turning, _ = self.features
        return [
            self._placed(turned, 0, turning),
            self._placed(turned, self.query_heads, turning),
            self._placed(projected, self.turned_heads, features),
        ]

    def _placed(self, place: Place, first: int, features: int) -> Heads:
        """Heads from the `first` on of tokens with so many features."""
        return place.after(first * self.head_width), self.length * features, self.head_width, features
