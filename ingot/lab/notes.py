"""What may be said of an ablation in words: can the metrics tell, how they were tested, what to do."""

from __future__ import annotations

from collections.abc import Iterator

from ingot.lab.ablation_config import BASELINE
from ingot.lab.decide import MetricNoise
from ingot.lab.findings import Findings
from ingot.lab.optimum import Optimum

UNEVEN = 0.1  # share by which throughputs of equal runs may differ before none of them is believed


def notes(found: Findings) -> list[str]:
    """Lines, the most important first."""
    return [*_signal(found), *_test(found), *_sweeps(found), *_kind(found), *_throughput(found), *_missing(found)]


def _signal(found: Findings) -> Iterator[str]:
    """The first question: can this metric tell anything at this scale?"""
    for metric, noise in zip(found.metrics, found.decisions.noise, strict=True):
        if metric.signal is not None and metric.signal.kind == "blind":
            yield f"{metric.name} cannot tell: {'; '.join(metric.signal.reasons)}; nothing is ranked by it"
        elif (text := _noise(noise)) is not None:
            how = "" if metric.signal is None else f" ({metric.signal.kind}: {'; '.join(metric.signal.reasons)})"
            yield f"{metric.name} can tell{how}: {text}"


def _noise(noise: MetricNoise) -> str | None:
    if noise.deviation is None or noise.share is None or noise.shown is None:
        return None
    shown = noise.shown / abs(noise.mean)
    text = f"seeds of the baseline differ by {noise.share:.2%} (standard deviation over {noise.seeds})"
    return f"{text}; so many show a difference of {shown:.2%} four times in five, pairs smaller ones"


def _test(found: Findings) -> Iterator[str]:
    apart = [arm.arm.name for arm in found.arms[1:] if not arm.arm.paired]
    tests, level = found.decisions.tests, found.ablation.config.level
    if tests:
        pairs = "paired by seed" if not apart else f"paired by seed, but {', '.join(apart)} not: other data (Welch)"
        tested = f"{tests} difference{'' if tests == 1 else 's'}"
        yield f"t-tests {pairs}; p-values by Holm's method over {tested}, adopted or rejected below {level:g}"
    confounded = [arm.arm.name for arm in found.arms if arm.arm.confounded]
    if confounded:
        yield f"confounded: {', '.join(confounded)} changes several variables, and no table can say which of them it was"
    if any(arm.speed_up is not None and arm.speed_up.extrapolated for arm in found.arms):
        yield "* beyond the lengths that the baseline was trained for: give `curve` a longer one"


def _sweeps(found: Findings) -> Iterator[str]:
    for name, optimum in found.optima.items():
        yield f"{name}: {optimum_text(optimum)}"


def optimum_text(optimum: Optimum | None) -> str:
    """A fitted optimum in words, with the warning at the edge."""
    if optimum is None:
        return "no optimum: the parabola has none, or there are too few values and seeds"
    scale = "parabola in the logarithm" if optimum.log else "parabola"
    if optimum.edge is not None:
        return f"the best is at the {optimum.edge} value that was tried or beyond: widen the range ({scale})"
    return f"optimum {optimum.value:.3g}, interval {optimum.low:.3g} to {optimum.high:.3g} ({scale})"


def _kind(found: Findings) -> Iterator[str]:
    if found.ablation.config.kind == "annealing":
        stage = found.ablation.targets[0].stage
        yield f"annealing: all runs branch from one checkpoint, so the noise is that of {stage} alone, not of the run before it"


def _throughput(found: Findings) -> Iterator[str]:
    """A machine that others use, or runs side by side: then tokens/s say little."""
    rates = [run.tokens_per_second for run in found.runs if run.run.arm.name == BASELINE and run.tokens_per_second]
    if len(rates) > 1 and max(rates) > (1 + UNEVEN) * min(rates):
        yield (
            f"tokens/s say nothing here: those of the baseline's own runs differ by a factor of {max(rates) / min(rates):.2g} "
            "(the machine had other work)"
        )


def _missing(found: Findings) -> Iterator[str]:
    pruned = [run for run in found.runs if run.status == "pruned"]
    if pruned:
        told = "; ".join(f"{run.run.name}: {run.error}" for run in pruned)
        yield f"given up, and not in any test: {told}"
    waiting = sum(run.status == "not run" for run in found.runs)
    if waiting:
        yield f"{waiting} runs are left: the same command goes on"
