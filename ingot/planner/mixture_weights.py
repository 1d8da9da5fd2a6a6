"""Fits the weights of a mixture to the tokens that each source has; `ingot doctor` names them where a run repeats one too often.

A stage of T tokens takes w_i T tokens of source i, which has n_i and may be seen R times. Wished weights v_i rarely fit; the
nearest that do (smallest Kullback-Leibler divergence from v) are

    w_i  =  min(c_i, s v_i),     c_i = R n_i / T,     s such that the weights sum to 1:

sources that would run out give what they have, and the others share the rest in their old proportions (water-filling).
It has an exact solution: sources in the order of c_i / v_i reach their cap one after the other. There is one if and only
if T <= R Σ n_i over the sources that are wished for. Uniform wishes are UniMax (Chung et al. 2023, arXiv 2304.09151).

Sources are keyed by name everywhere: a list in another order cannot misplace a cap.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from ingot.workspace.errors import RecipeError

EPOCHS = 4.0
"""How often text may be seen: four epochs are nearly as good as new data (Muennighoff et al. 2023, arXiv 2305.16264)."""


def water_fill(wished: Mapping[str, float], caps: Mapping[str, float]) -> dict[str, float]:
    """min(cap, s * wished) for the s at which the sum is 1. The caps of what is wished must sum to 1 or more."""
    weights = dict.fromkeys(wished, 0.0)
    wanted = sorted((name for name in wished if wished[name] > 0), key=lambda name: (caps[name] / wished[name], name))
    left, share_left = 1.0, math.fsum(wished[name] for name in wanted)
    for index, name in enumerate(wanted):
        if caps[name] * share_left > left * wished[name]:  # no source from here on runs out
            share = math.fsum(wished[other] for other in wanted[index:])
            return weights | {other: left * wished[other] / share for other in wanted[index:]}
        weights[name] = caps[name]
        left -= caps[name]
        share_left -= wished[name]
    return weights


def fit_mixture(
    available: Mapping[str, float], target: float, weights: Mapping[str, float], epochs: float = EPOCHS
) -> dict[str, float]:
    """The feasible weights nearest to the wished ones. `available` are tokens by source, or rows, as `target` is."""
    whole = math.fsum(weights.values())
    wished = {name: weight / whole for name, weight in sorted(weights.items())}
    stock = math.fsum(available[name] for name in wished if wished[name] > 0)
    if epochs * stock < target * (1 - 1e-12):
        raise RecipeError(
            f"{target:.4g} asked for, and {stock:.4g} seen {epochs:g} times are {epochs * stock:.4g}",
            fix=f"ask for at most {epochs * stock:.4g}, or give a weight to more sources",
        )
    return water_fill(wished, {name: epochs * available[name] / target for name in wished})
