"""The quality score: hand-worked parts, and agreement with people."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ingot.data.apply import apply
from ingot.data.steps.quality import QualityStep

Rows = Callable[[str], list[dict[str, Any]]]


def scores(texts: list[str], kind: str = "prose", **options: Any) -> list[float]:
    table = apply(QualityStep(**options), [{"text": text, "kind": kind} for text in texts])
    found: list[float] = table.column("quality").to_pylist()
    return found


def area_under_curve(rows: list[dict[str, Any]]) -> float:
    """The chance that a document people call good scores higher than one they do not."""
    good = scores([row["text"] for row in rows if row["label"] == 1])
    bad = scores([row["text"] for row in rows if row["label"] == 0])
    wins = sum((g > b) + 0.5 * (g == b) for g in good for b in bad)
    return wins / (len(good) * len(bad))


def test_prose_score_agrees_with_people(rows_of: Rows) -> None:
    rows = rows_of("dclm_human_quality/docs.jsonl.gz")
    assert area_under_curve(rows) > 0.80  # measured 0.829
    assert area_under_curve([row for row in rows if row["unanimous"]]) > 0.90  # measured 0.921


def test_parts_of_the_prose_score() -> None:
    words = " ".join(["the", "model", "of", "languages"] * 400)  # 1600 words, half function words, only letters
    assert scores([words + ".", words]) == [1.0, 0.75]  # the second has no sentence end
    assert scores([" ".join(["12", "models"] * 1600) + "."])[0] < 0.8  # digits for letters, no function words


def test_explained_code_is_better() -> None:
    bare = "\n".join(f"def function_{name}(value):\n    return value" for name in "abcdefgh")
    told = "\n".join(f'def function_{name}(value):\n    """Give it back."""\n    return value' for name in "abcdefgh")
    first, second = scores([told, bare], "code")
    assert first > second


def test_minimum_removes_with_the_score() -> None:
    table = apply(QualityStep(minimum=0.5), [{"text": "12 34", "kind": "prose"}])
    assert table.column("removed_by").to_pylist() == ["score 0 < 0.5"]
