"""How long chosen and rejected answers are, before and after the cap on their difference.

People and judges prefer long answers, and DPO learns "longer" as readily as "better" (arXiv 2403.19159). The table shows how
large that difference is in a stage's pairs, and what the cap left of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, quantiles
from typing import Any

from ingot.post.data.pairs.pair import Answer, Pair, answer_length


def describe_lengths(before: Sequence[Pair[Answer]], after: Sequence[Pair[Answer]]) -> dict[str, dict[str, float]]:
    """A row for the chosen and the rejected answers of each, in tokens; `longer_share` are those longer than their other half."""
    rows: dict[str, dict[str, Any]] = {}
    for when, pairs in (("before the cap", before), ("after the cap", after)):
        lengths = [(answer_length(pair.chosen), answer_length(pair.rejected)) for pair in pairs]
        for side, name in enumerate(("chosen", "rejected")):
            own, other = [each[side] for each in lengths], [each[1 - side] for each in lengths]
            rows[f"{name}, {when}"] = _row(own, other)
    return rows


def _row(own: Sequence[int], other: Sequence[int]) -> dict[str, float]:
    if not own:
        return {"pairs": 0, "mean": 0.0, "median": 0.0, "90th percentile": 0.0, "longer_share": 0.0}
    tenths = quantiles(own, n=10, method="inclusive") if len(own) > 1 else [float(own[0])] * 9
    longer = sum(a > b for a, b in zip(own, other, strict=True)) / len(own)
    return {
        "pairs": len(own),
        "mean": fmean(own),
        "median": tenths[4],
        "90th percentile": tenths[8],
        "longer_share": longer,
    }
