"""Fits the weights of a mixture to the tokens that each source has.

A stage of T tokens takes w_i T tokens of source i, which has n_i and may be repeated R_i times. Wished weights v_i rarely
fit; the nearest that do (smallest Kullback-Leibler divergence from v) are

    w_i  =  min(c_i, s v_i),     c_i = R_i n_i / T,     s such that the weights sum to 1:

sources that would run out give what they have, and the others share the rest in their old proportions (water-filling).
It has an exact solution: sources in the order of c_i / v_i reach their cap one after the other. There is one if and only
if T <= sum of R_i n_i.

Without wishes, v_i is proportional to n_i^(1 / temperature): 1 follows the sizes, larger is flatter, infinity is uniform,
which together with the caps is UniMax (Chung et al. 2023, arXiv 2304.09151).

Sources are keyed by name everywhere: a list in another order cannot misplace a cap.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ingot.workspace.errors import RecipeError


@dataclass(frozen=True)
class Share:
    """What a stage takes of one source."""

    wished: float
    weight: float
    tokens: float  # weight times the stage's tokens
    epochs: float  # how often the source is seen, earlier stages included
    capped: bool  # whether it gives less than wished in proportion because it runs out


@dataclass(frozen=True)
class MixtureStage:
    """A stage to plan: its tokens, and the wished weights (none: by size and `temperature`)."""

    name: str
    tokens: float
    weights: Mapping[str, float] = field(default_factory=dict)
    temperature: float = 1.0


def wished_weights(available: Mapping[str, float], temperature: float) -> dict[str, float]:
    """Weights in proportion to available^(1 / temperature), summing to 1."""
    if not temperature > 0:
        raise RecipeError(f"temperature {temperature:g} gives no weights", fix="use 1 for sizes, math.inf for uniform")
    largest = max(available.values())
    powers = {name: (tokens / largest) ** (1 / temperature) if tokens else 0.0 for name, tokens in available.items()}
    return {name: power / sum(powers.values()) for name, power in powers.items()}


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
    available: Mapping[str, float],
    target: float,
    weights: Mapping[str, float] | None = None,
    *,
    max_epochs: float | Mapping[str, float] = 4.0,
    temperature: float = 1.0,
    used: Mapping[str, float] | None = None,
) -> dict[str, Share]:
    """The feasible weights nearest to the wished ones.

    `available` and `used` (by earlier stages) are tokens by source. Four epochs are nearly as good as new data
    (Muennighoff et al. 2023, arXiv 2305.16264), which is the default cap.
    """
    used = used or {}
    wished = dict(weights) if weights else wished_weights(available, temperature)
    unknown = sorted((set(wished) | set(used)) - set(available))
    if unknown:
        raise RecipeError(f"no such source: {', '.join(unknown)}", fix=f"there are {', '.join(sorted(available))}")
    bad = sorted(name for name, weight in wished.items() if not (math.isfinite(weight) and weight >= 0))
    if bad or not any(wished.values()) or not target > 0:
        raise RecipeError(
            f"weights {wished} and {target:g} tokens make no mixture", fix="weights are 0 or more, one at least above 0"
        )
    whole = math.fsum(wished.values())
    wished = {name: wished.get(name, 0.0) / whole for name in sorted(available)}
    epochs = {name: max_epochs[name] if isinstance(max_epochs, Mapping) else max_epochs for name in wished}
    rest = {name: max(0.0, epochs[name] * available[name] - used.get(name, 0.0)) for name in wished}
    most = math.fsum(rest[name] for name in wished if wished[name] > 0)
    if most < target * (1 - 1e-12):
        stock = math.fsum(available[name] for name in wished if wished[name] > 0)
        spent = math.fsum(used.get(name, 0.0) for name in wished if wished[name] > 0)
        raise RecipeError(
            f"{target:.4g} tokens asked for, {most:.4g} can be had from {stock:.4g} tokens with these caps",
            fix=f"ask for at most {most:.4g}, allow {math.ceil((target + spent) / stock * 100) / 100:g} epochs everywhere, "
            "or give a weight to more sources",
        )
    filled = water_fill(wished, {name: tokens / target for name, tokens in rest.items()})
    shares = {}
    for name, weight in filled.items():
        seen = weight * target + used.get(name, 0.0)
        shares[name] = Share(
            wished=wished[name],
            weight=weight,
            tokens=weight * target,
            epochs=seen / available[name] if available[name] else 0.0,
            capped=wished[name] > 0 and weight * target >= rest[name] * (1 - 1e-12),
        )
    return shares


def fit_stages(
    available: Mapping[str, float], stages: Sequence[MixtureStage], *, max_epochs: float | Mapping[str, float] = 4.0
) -> dict[str, dict[str, Share]]:
    """Stage by stage; what an earlier stage took counts towards the caps of the later ones."""
    used = dict.fromkeys(available, 0.0)
    plan = {}
    for stage in stages:
        shares = fit_mixture(
            available,
            stage.tokens,
            stage.weights or None,
            max_epochs=max_epochs,
            temperature=stage.temperature,
            used=used,
        )
        used = {name: used[name] + share.tokens for name, share in shares.items()}
        plan[stage.name] = shares
    return plan


def mixture_lines(shares: Mapping[str, Share]) -> list[str]:
    """The plan as a table for people."""
    lines = [f"{'source':<24} {'wished':>8} {'weight':>8} {'tokens':>10} {'epochs':>7}"]
    for name, share in sorted(shares.items(), key=lambda pair: (-pair[1].weight, pair[0])):
        note = "  all that it may give" if share.capped else ""
        lines.append(
            f"{name:<24} {share.wished:>8.4f} {share.weight:>8.4f} {share.tokens:>10.4g} {share.epochs:>7.2f}{note}"
        )
    return lines
