"""Win rates without the advantage of length (AlpacaEval LC; Dubois et al. 2024, arXiv 2404.04475).

Judges prefer long answers. So the preference for the model (1, 0, 0.5) is explained by a logistic regression without intercept,

    p = sigma( theta + phi tanh( delta / sd(delta) ) ),   delta = characters of the baseline's answer − the model's

and the controlled win rate is p at delta = 0: sigma(theta). The fit is AlpacaEval's: an L1 penalty whose strength is chosen among
ten by five-fold cross-validation over prompts. Its leaderboard also has a term for the difficulty of each prompt, which comes
from all models that were ever compared; this is the form without it ("minimal").
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ingot.evals.scores.statistics import Estimate

Array = NDArray[np.float64]
STRENGTHS = np.logspace(-4, 4, 10)  # C: the weight of the data against the penalty
FOLDS = 5
STEPS, CLOSE = 200, 1e-9
FLOOR = 1e-9  # of the curvature, where all is certain


def length_controlled(preferences: Sequence[float], lengths: Sequence[int], baseline: Sequence[int]) -> Estimate:
    """The win rate at equal lengths; its standard error is that of theta, by the sandwich of the fit."""
    wanted = np.asarray(preferences, dtype=np.float64)
    features = design(lengths, baseline)
    weights = fit(features, wanted, choose(features, wanted))
    value = float(_sigmoid(weights[:1])[0])
    return Estimate(value, value * (1 - value) * _theta_error(features, wanted, weights), len(wanted))


def design(lengths: Sequence[int], baseline: Sequence[int]) -> Array:
    """The two features of every comparison: 1, and the difference of lengths."""
    delta = np.asarray(baseline, dtype=np.float64) - np.asarray(lengths, dtype=np.float64)
    spread = float(delta.std(ddof=1)) if len(delta) > 1 else 0.0
    return np.stack([np.ones_like(delta), np.tanh(delta / spread) if spread else np.zeros_like(delta)], axis=1)


def choose(features: Array, wanted: Array) -> float:
    """The strength with the smallest log loss on folds that were left out."""
    if len(wanted) < 2 * FOLDS:
        return float(STRENGTHS[-1])
    fold = np.arange(len(wanted)) % FOLDS
    losses = [
        sum(
            _loss(features[fold == out], wanted[fold == out], fit(features[fold != out], wanted[fold != out], strength))
            for out in range(FOLDS)
        )
        for strength in STRENGTHS
    ]
    return float(STRENGTHS[int(np.argmin(losses))])


def fit(features: Array, wanted: Array, strength: float) -> Array:
    """Minimise |w|_1 + C Σ log loss: Newton steps, each with the penalty solved by coordinates, and halved until they help."""
    weights = np.zeros(features.shape[1])
    value = _objective(features, wanted, weights, strength)
    for _ in range(STEPS):
        found = _sigmoid(features @ weights)
        slope = strength * features.T @ (found - wanted)
        curve = strength * features.T @ (features * (found * (1 - found))[:, None]) + FLOOR * np.eye(len(weights))
        step = _penalised(weights, slope, curve) - weights
        while np.abs(step).max() > CLOSE and _objective(features, wanted, weights + step, strength) > value:
            step = step / 2
        if np.abs(step).max() <= CLOSE:
            return weights
        weights = weights + step
        value = _objective(features, wanted, weights, strength)
    return weights


def _penalised(weights: Array, slope: Array, curve: Array) -> Array:
    """The minimum of the quadratic at `weights` plus the penalty, coordinate after coordinate."""
    new = weights.copy()
    for _ in range(STEPS):
        before = new.copy()
        for place in range(len(new)):
            pull = curve[place, place] * new[place] - slope[place] - curve[place] @ (new - weights)
            new[place] = math.copysign(max(abs(pull) - 1, 0.0), pull) / curve[place, place]
        if np.abs(new - before).max() <= CLOSE:
            break
    return new


def _objective(features: Array, wanted: Array, weights: Array, strength: float) -> float:
    return float(np.abs(weights).sum()) + strength * len(wanted) * _loss(features, wanted, weights)


def _theta_error(features: Array, wanted: Array, weights: Array) -> float:
    found = _sigmoid(features @ weights)
    bread = np.linalg.pinv(features.T @ (features * (found * (1 - found))[:, None]))
    scores = features * (wanted - found)[:, None]
    return math.sqrt(max(0.0, float((bread @ scores.T @ scores @ bread)[0, 0])))


def _loss(features: Array, wanted: Array, weights: Array) -> float:
    logits = features @ weights
    return float(np.mean(np.logaddexp(0, logits) - wanted * logits))


def _sigmoid(logits: Array) -> Array:
    return np.exp(-np.logaddexp(0, -logits))
