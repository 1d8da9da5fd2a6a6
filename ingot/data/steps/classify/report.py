"""Measures a classifier on held-out texts: precision, recall, F1 and the area under the ROC curve, by class.

precision = right among those called so          recall = found among those that are so
F1 = 2 / (1/precision + 1/recall)
AUC = chance that a text of the class scores above one of another (ties count half): the Mann-Whitney statistic
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def area_under_curve(scores: NDArray[Any], positive: NDArray[np.bool_]) -> float:
    """AUC by ranks; nan if a side is empty."""
    values, inverse = np.unique(scores, return_inverse=True)
    of_value = np.bincount(inverse, minlength=len(values))
    rank = np.cumsum(of_value) - (of_value - 1) / 2  # the mean rank among equals
    good, bad = int(positive.sum()), int((~positive).sum())
    if not good or not bad:
        return float("nan")
    return float((rank[inverse][positive].sum() - good * (good + 1) / 2) / (good * bad))


def threshold_at(scores: NDArray[Any], positive: NDArray[np.bool_], recall: float) -> dict[str, float]:
    """The highest threshold (keep if score >= it) that finds this share of the positives, and its precision."""
    found = np.sort(scores[positive])[::-1]
    threshold = found[max(int(np.ceil(recall * len(found))), 1) - 1]
    kept = scores >= threshold
    return {
        "recall": float((kept & positive).sum() / positive.sum()),
        "threshold": float(threshold),
        "precision": float((kept & positive).sum() / kept.sum()),
        "kept": float(kept.mean()),
    }


def report(
    labels: Sequence[str], truth: Sequence[str], scores: NDArray[Any], recalls: Sequence[float] = (0.5, 0.9, 0.95)
) -> dict[str, Any]:
    """The numbers of every class: the called one is the most probable; thresholds are for its score alone."""
    called = scores.argmax(axis=1)
    wanted = np.array([labels.index(label) for label in truth], np.int64)
    classes = {}
    for number, label in enumerate(labels):
        positive, said = wanted == number, called == number
        right = int((positive & said).sum())
        precision = right / max(int(said.sum()), 1)
        recall = right / max(int(positive.sum()), 1)
        classes[label] = {
            "texts": int(positive.sum()),
            "precision": precision,
            "recall": recall,
            "f1": 2 * precision * recall / (precision + recall) if right else 0.0,
            "auc": area_under_curve(scores[:, number], positive) if 0 < positive.sum() < len(wanted) else None,
            "thresholds": [threshold_at(scores[:, number], positive, share) for share in recalls] if right else [],
        }
    return {
        "texts": len(wanted),
        "accuracy": float((called == wanted).mean()) if len(wanted) else None,
        "classes": classes,
    }


def as_lines(found: dict[str, Any]) -> list[str]:
    """The report as a table for a person."""
    lines = [f"{'class':20} {'texts':>7} {'precision':>9} {'recall':>7} {'F1':>6} {'AUC':>6}"]
    for label, row in found["classes"].items():
        auc = "-" if row["auc"] is None else f"{row['auc']:.3f}"
        lines.append(
            f"{label[:20]:20} {row['texts']:7,} {row['precision']:9.3f} {row['recall']:7.3f} {row['f1']:6.3f} {auc:>6}"
        )
    for label, row in found["classes"].items():
        lines += [
            f"{label[:20]:20} score >= {at['threshold']:.4g}: recall {at['recall']:.3f}, "
            f"precision {at['precision']:.3f}, {at['kept']:.1%} of the texts"
            for at in row["thresholds"]
        ]
    return lines
