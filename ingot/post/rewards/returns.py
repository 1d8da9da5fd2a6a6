"""Rewards, returns and advantages of single tokens. Tokens that the policy did not sample are passed over.

    return       G_t = r_t + γ G_{t+1}
    GAE          δ_t = r_t + γ V_{t+1} − V_t,     A_t = δ_t + γ λ A_{t+1}          (arXiv 1506.02438)
    whitening    (A − mean) / sqrt(var + 1e-8) over all sampled tokens, variance with n − 1

Here t + 1 is the next token that the policy sampled, beyond a tool's result too: frameworks that stop at one never let the final
reward reach what was written before it. After the last sampled token V and A are 0. The numbers are rows of an episode's tokens,
with a mask of those that were sampled.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

Row = Sequence[float]
Mask = Sequence[int]
WHITENING_EPSILON = 1e-8


def token_rewards(
    earned: Sequence[float], masks: Sequence[Mask], divergences: Sequence[Row] | None = None, weight: float = 0.0
) -> list[list[float]]:
    """What each answer earned, at its last sampled token; minus the weighted divergence of each sampled token."""
    rows = [[0.0] * len(mask) for mask in masks]
    if divergences is not None:
        rows = [[-weight * value for value in row] for row in divergences]
    for row, mask, value in zip(rows, masks, earned, strict=True):
        last = max((place for place, one in enumerate(mask) if one), default=None)
        if last is not None:
            row[last] += value
    return rows


def discounted(rewards: Row, mask: Mask, discount: float) -> list[float]:
    """The return of every sampled token, 0 elsewhere."""
    result, after = [0.0] * len(mask), 0.0
    for place in reversed(range(len(mask))):
        if mask[place]:
            result[place] = after = rewards[place] + discount * after
    return result


def generalised_advantages(
    rewards: Row, values: Row, mask: Mask, discount: float, smoothing: float
) -> tuple[list[float], list[float]]:
    """A_t and the return A_t + V_t of every sampled token, 0 elsewhere."""
    advantages, returns = [0.0] * len(mask), [0.0] * len(mask)
    next_value = next_advantage = 0.0
    for place in reversed(range(len(mask))):
        if mask[place]:
            error = rewards[place] + discount * next_value - values[place]
            next_advantage = error + discount * smoothing * next_advantage
            next_value = values[place]
            advantages[place], returns[place] = next_advantage, next_advantage + next_value
    return advantages, returns


def whiten(rows: Sequence[Row], masks: Sequence[Mask]) -> list[list[float]]:
    """The rows with mean 0 and variance 1 over the sampled tokens of all; exactly 0 where all are equal."""
    pairs = list(zip(rows, masks, strict=True))
    chosen = [value for row, mask in pairs for value, one in zip(row, mask, strict=True) if one]
    if len(chosen) < 2 or min(chosen) == max(chosen):
        return [[0.0] * len(row) for row in rows]
    mean = statistics.fmean(chosen)
    variance = math.fsum((value - mean) ** 2 for value in chosen) / (len(chosen) - 1)
    scale = math.sqrt(variance + WHITENING_EPSILON)
    return [[(value - mean) / scale * one for value, one in zip(row, mask, strict=True)] for row, mask in pairs]
