"""The rules that watch a run: one table, each rule with its reason, its condition and its action.

Every rule looks at the numbers of one step and at the recent past, and says in words what it saw, or nothing. What follows is
in the table's last column:

    stop      the run ends with an error that names the layer (locate.py); the last checkpoint, if there is one, is intact
    spike     what the recipe says: warn, skip, clip, rewind (spikes.py; loop.py rewinds)
    warn      a line on the screen

All reports go into events.jsonl. A rule that only warns is silent for a window of steps after a report.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import mean, median
from typing import Literal

from ingot.train.guards.config import GuardsConfig
from ingot.train.guards.history import History

RECENT = 8  # steps that "stays" and "recently" mean
CERTAIN = 0.1  # an entropy below this share of its early level


@dataclass(frozen=True)
class StepView:
    """The input of a rule: a step's numbers and those before."""

    metrics: Mapping[str, float]
    history: History
    config: GuardsConfig
    vocabulary: int
    ranks: int = 1


@dataclass(frozen=True)
class Rule:
    """One thing that is watched."""

    name: str
    reason: str
    condition: Callable[[StepView], str | None]
    action: Literal["stop", "spike", "warn"]


def not_finite(sight: StepView) -> str | None:
    bad = [name for name, value in sight.metrics.items() if not math.isfinite(value)]
    watched = [name for name in ("loss", "gradient_norm") if name in bad]
    others = [name for name in bad if name not in watched]
    if not watched:
        return None
    shown = ", ".join(f"{name.replace('_', ' ')} {sight.metrics[name]}" for name in ("loss", "gradient_norm"))
    return shown + (f"; also not finite: {', '.join(others)}" if others else "")


def spike(sight: StepView) -> str | None:
    limit = sight.config.spike_sigmas
    above = {name: sight.metrics.get(f"{name}_deviations", 0.0) for name in ("loss", "gradient_norm")}
    seen = [
        f"{name.replace('_', ' ')} {sight.metrics[name]:.4g} lies {deviations:.1f} deviations above the last steps"
        for name, deviations in above.items()
        if deviations > limit
    ]
    return " and ".join(seen) or None


def large_gradient(sight: StepView) -> str | None:
    norm, limit = sight.metrics["gradient_norm"], sight.config.gradient_limit
    return f"gradient norm {norm:.4g} before clipping, limit {limit:g}" if norm > limit else None


def growing_gradient(sight: StepView) -> str | None:
    recent = sight.history.last("gradient_norm", RECENT)
    older = sight.history.older("gradient_norm", sight.config.window // 2)
    if not recent or not older or median(recent) <= sight.config.gradient_growth * median(older):
        return None
    return f"gradient norm {median(recent):.4g} in the last {RECENT} steps, {median(older):.4g} in the older half of the window"


def stuck(sight: StepView) -> str | None:
    name, chance = "cross_entropy", math.log(sight.vocabulary)
    if not sight.history.full(name) or median(sight.history.last(name, RECENT)) < 0.99 * chance:
        return None
    return f"the cross-entropy is still that of guessing, ln {sight.vocabulary} = {chance:.3f}"


def slow(sight: StepView) -> str | None:
    """Tokens per second over some steps, so that a single slow step says nothing; the cause is where the added time went."""
    history = sight.history
    seconds, usual = history.last("seconds", RECENT), history.older("tokens_per_second", RECENT)
    if not seconds or not usual:
        return None
    rates = history.last("tokens_per_second", RECENT)
    rate = sum(each * time for each, time in zip(rates, seconds, strict=True)) / sum(seconds)
    if rate >= sight.config.slow_factor * median(usual):
        return None
    usually, now = _times(history.older, sight.ranks, median), _times(history.last, sight.ranks, mean)
    added = {cause: now[cause] - usually[cause] for cause in now}
    cause = max(added, key=lambda each: added[each])
    shares = ", ".join(f"{each} {1000 * time:+.0f} ms" for each, time in added.items())
    return f"{rate:,.0f} tokens/s, usually {median(usual):,.0f}; likely cause: {cause} (per step: {shares})"


def _times(
    pick: Callable[[str, int], list[float]], ranks: int, average: Callable[[list[float]], float]
) -> dict[str, float]:
    """Seconds a step by what they were spent on. What is usual is a median, as the usual rate is: outliers are not usual."""
    seconds, stalls = pick("seconds", RECENT), pick("checkpoint_stall", RECENT)
    waits = [share * time for share, time in zip(pick("data_wait_share", RECENT), seconds, strict=True)]
    works = [time - wait - stall for time, wait, stall in zip(seconds, waits, stalls, strict=True)]
    rest = "compute" if ranks == 1 else "compute, or communication with a slower rank"
    return {"data wait": average(waits), "checkpoint": average(stalls), rest: average(works)}


def memory_growth(sight: StepView) -> str | None:
    early, now = sight.history.early("memory_gib"), sight.metrics.get("memory_gib", 0.0)
    if early is None or now <= sight.config.memory_growth * early:
        return None
    return f"{now:.2f} GiB in use, {early:.2f} in the first steps"


def overloaded_expert(sight: StepView) -> str | None:
    recent, limit = sight.history.last("router/max_violation_worst", RECENT), sight.config.router_violation
    if not recent or min(recent) <= limit:
        return None
    return f"in some layer the busiest expert gets {recent[-1] + 1:.1f} times the mean load (MaxVio {recent[-1]:.1f})"


def dead_expert(sight: StepView) -> str | None:
    idle = sight.metrics.get("router/idle_steps", 0.0)
    return f"an expert got no token for {idle:.0f} steps" if idle >= sight.config.dead_expert_steps else None


def certain_router(sight: StepView) -> str | None:
    name = "router/entropy_worst"
    early, recent = sight.history.early(name), sight.history.last(name, RECENT)
    if early is None or not recent or max(recent) >= CERTAIN * early:
        return None
    return f"a router's entropy fell from {early:.3g} to {recent[-1]:.3g} nats: it hardly weighs its experts any more"


RULES = (
    Rule("not finite", "a NaN in one gradient is a NaN in every weight", not_finite, "stop"),
    Rule("spike", "a bad batch or a far too large update can undo days", spike, "spike"),
    Rule("large gradient", "clipping hides it; the direction of such a step is mostly noise", large_gradient, "warn"),
    Rule("growing gradient", "the norm climbs for a while before a run diverges", growing_gradient, "warn"),
    Rule("stuck", "nothing is learnt: learning rate, data or labels are wrong", stuck, "warn"),
    Rule("slow", "a slow disk, device or neighbour costs as much as a crash, only later", slow, "warn"),
    Rule("memory growth", "a leak ends a run long after it began", memory_growth, "warn"),
    Rule("overloaded expert", "the router collapses: one expert learns, the others starve", overloaded_expert, "warn"),
    Rule(
        "dead expert",
        "an expert that gets no token gets no gradient and learns nothing",
        dead_expert,
        "warn",
    ),
    Rule("certain router", "a saturated router has no gradient left to change its mind", certain_router, "warn"),
)
