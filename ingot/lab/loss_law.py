"""The loss of a model by its size and its tokens, and what a budget buys: closed forms of one law.

    L(N, D) = E + A / N^alpha + B / D^beta                           (Hoffmann et al. 2022, arXiv 2203.15556)

C = 6 N D training FLOPs reach the smallest loss at

    N* = G (C / 6)^(beta / (alpha + beta))      D* = C / (6 N*)      G = (alpha A / (beta B))^(1 / (alpha + beta))

A model that then processes T tokens for its users costs 2 N T more (Sardana et al. 2024, arXiv 2401.00448). The best model for
the sum of both is smaller: alpha A N^-alpha, which falls with N, meets beta B D^-beta (1 + T / (3 D)), which rises with it.

All numbers hold for the data and the recipe of the fitted runs, and for what was counted as N there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

TRAINING = 6.0  # FLOPs for each parameter and token: forward and backward
SERVING = 2.0  # forward alone
HALVINGS = 100  # of an interval of ln N: more than a float64 can tell apart
REACH = 100.0  # where that interval begins, below the largest model that the budget can serve


@dataclass(frozen=True)
class Model:
    """A size, a horizon, and the loss that the law expects of them."""

    parameters: float
    tokens: float
    loss: float

    @property
    def ratio(self) -> float:
        """Tokens for each parameter."""
        return self.tokens / self.parameters


@dataclass(frozen=True)
class LossLaw:
    """The five coefficients, by their names in the papers."""

    E: float
    A: float
    B: float
    alpha: float
    beta: float

    def loss(self, parameters: float, tokens: float) -> float:
        """The loss of a model of N parameters after D tokens."""
        return self.E + self.A * parameters**-self.alpha + self.B * tokens**-self.beta

    @property
    def size_exponent(self) -> float:
        """How the best size grows with compute: N* ~ C^this."""
        return self.beta / (self.alpha + self.beta)

    def model(self, parameters: float, tokens: float) -> Model:
        """This size and horizon with its loss."""
        return Model(parameters, tokens, self.loss(parameters, tokens))

    def best(self, flops: float) -> Model:
        """The model of the smallest loss for this much training."""
        product = flops / TRAINING
        balance = math.log(self.alpha * self.A) - math.log(self.beta * self.B)
        parameters = math.exp(balance / (self.alpha + self.beta) + self.size_exponent * math.log(product))
        return self.model(parameters, product / parameters)

    def at_ratio(self, flops: float, ratio: float) -> Model:
        """The model that this much training gives with so many tokens for each parameter."""
        parameters = math.sqrt(flops / TRAINING / ratio)
        return self.model(parameters, ratio * parameters)

    def best_to_serve(self, flops: float, served: float) -> Model:
        """The model of the smallest loss where `flops` pay for its training and for `served` tokens of use (more than 0)."""
        high = math.log(flops / (SERVING * served))
        low = high - REACH
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            size = math.exp(middle)
            tokens = (flops / size - SERVING * served) / TRAINING
            by_size = self.alpha * self.A * size**-self.alpha
            if tokens > 0 and by_size > self.beta * self.B * tokens**-self.beta * (
                1 + SERVING / TRAINING * served / tokens
            ):
                low = middle
            else:
                high = middle
        parameters = math.exp(low)
        return self.model(parameters, (flops / parameters - SERVING * served) / TRAINING)
