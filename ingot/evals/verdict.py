"""The verdict: does the run hold what its recipe claims.

A claim "metric of A above B by m, s sigmas" holds if

    sign * (A - B) - m  >  s * SE(A - B)

with the paired standard error where A and B were measured on the same tasks; an error that is not known (one task) is
infinite, and with s = 0 none is asked for. The claim "not above" holds if that one does not, and the error is known: it says of a
control that nothing can be seen to have moved, and shows how large a difference could have been seen.

Everything is written to verdict.json first; then a claim that failed fails the stage, with its numbers.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ingot.evals.config import BASELINES, ClaimConfig, VerdictConfig
from ingot.evals.scores.scores import Metric, load_scores
from ingot.evals.scores.statistics import Estimate
from ingot.workspace.errors import CheckFailed, RecipeError
from ingot.workspace.files import atomic_folder, write_json
from ingot.workspace.stage import StageFolder

ROUNDING = 1e-12  # a difference of nothing but rounding is no difference


def run(config: VerdictConfig, inputs: Mapping[str, Mapping[str, Path]], folder: StageFolder) -> dict[str, Any]:
    """Judge every claim; raises `CheckFailed` after writing when one does not hold."""
    scores = {stage: load_scores(path) for stage, path in inputs["scores"].items()}
    judged = [judge(claim, scores) for claim in config.claims]
    failed = [row["claim"] for row in judged if not row["held"]]
    with atomic_folder(folder.artifact("verdict")) as temporary:
        write_json(
            temporary / "verdict.json",
            {"claims": judged, "held": len(judged) - len(failed), "failed": len(failed)},
        )
    for row in judged:
        folder.progress.say(row["claim"])
    if failed:
        raise CheckFailed(
            f"{len(failed)} of {len(judged)} claims did not hold:\n" + "\n".join(f"  {text}" for text in failed),
            place=str(folder.artifact("verdict") / "verdict.json"),
            fix="look at the curves and samples in the report; the stage named in a claim did not learn what it should, or moved "
            "without a reason to (not above)",
        )
    return {"held": len(judged), "claims": [row["claim"] for row in judged]}


def judge(claim: ClaimConfig, scores: Mapping[str, Mapping[str, Metric]]) -> dict[str, Any]:
    """A claim with its numbers: `held` says whether it is true."""
    metric = find_metric(scores, claim.stage, claim.metric)
    reference, other_stage = claim.reference, claim.reference_stage
    if isinstance(reference, str):
        if other_stage is None:
            other = find_metric(scores, claim.stage, BASELINES[reference])
        else:
            other = find_metric(scores, other_stage, claim.metric)
        difference, against = metric.minus(other), other.estimate.value
    else:
        against = float(reference)
        difference = Estimate(metric.estimate.value - against, metric.estimate.standard_error, metric.estimate.count)
    lead = claim.sign * difference.value - claim.by
    noise = claim.sigmas * difference.standard_error if claim.sigmas else 0.0  # 0 times infinity is not a number
    differs = lead > ROUNDING and lead > noise
    held = not differs and math.isfinite(noise) if claim.denies else differs
    return {
        "claim": describe(claim, metric.estimate.value, against, difference, held),
        "held": held,
        "metric": claim.metric,
        "stage": claim.stage,
        "direction": claim.side.replace("_", " "),
        "reference": reference,
        "value": metric.estimate.value,
        "reference_value": against,
        "difference": difference.value,
        "standard_error": difference.standard_error if math.isfinite(difference.standard_error) else None,
        "by": claim.by,
        "sigmas": claim.sigmas,
    }


def describe(claim: ClaimConfig, value: float, against: float, difference: Estimate, held: bool) -> str:
    """One line: what was claimed, the numbers, and how it came out."""
    wanted = f"{claim.reference}" + (f" by {claim.by:g}" if claim.by else "")
    numbers = f"{value:.4f} against {against:.4f}, difference {difference.value:+.4f} ± {difference.standard_error:.4f}"
    asked = f"{'at most' if claim.denies else 'more than'} {claim.sigmas:g} standard errors asked"
    side, outcome = claim.side.replace("_", " "), "held" if held else "FAILED"
    return f"{outcome}: {claim.metric} of {claim.stage} {side} {wanted} ({numbers}; {asked})"


def find_metric(scores: Mapping[str, Mapping[str, Metric]], stage: str, name: str) -> Metric:
    """A stage's metric; an unknown name is an error with the nearest right one."""
    if stage not in scores:
        raise RecipeError(
            f"a claim names the stage {stage!r}, which was not evaluated", place="verdict", fix=_nearest(stage, scores)
        )
    if name not in scores[stage]:
        raise RecipeError(
            f"a claim names the metric {name!r}, which the evaluation of {stage} does not have",
            place="verdict",
            fix=_nearest(name, scores[stage]),
        )
    return scores[stage][name]


def _nearest(name: str, known: Mapping[str, object]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    listed = ", ".join(known) or "nothing"
    return f"did you mean {close[0]!r}? there is: {listed}" if close else f"there is: {listed}"
