"""The quality score: bounds, and agreement with people."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ingot.data.config import QualityStep
from ingot.data.quality import code_quality, prose_quality, ramp, score_code, score_prose

Rows = Callable[[str], list[dict[str, Any]]]


def area_under_curve(rows: list[dict[str, Any]]) -> float:
    """The chance that a document people call good scores higher than one they do not."""
    good = [prose_quality(row["text"]) for row in rows if row["label"] == 1]
    bad = [prose_quality(row["text"]) for row in rows if row["label"] == 0]
    wins = sum((g > b) + 0.5 * (g == b) for g in good for b in bad)
    return wins / (len(good) * len(bad))


def test_prose_score_agrees_with_people(rows_of: Rows) -> None:
    rows = rows_of("dclm_human_quality/docs.jsonl.gz")
    assert area_under_curve(rows) > 0.80  # measured 0.829
    assert area_under_curve([row for row in rows if row["unanimous"]]) > 0.90  # measured 0.921


@given(st.text(max_size=500))
def test_scores_are_shares(text: str) -> None:
    assert 0.0 <= prose_quality(text) <= 1.0
    assert 0.0 <= code_quality(text) <= 1.0


def test_parts_of_the_prose_score() -> None:
    words = " ".join(["the", "model", "of", "languages"] * 400)  # 1600 words, half function words, only letters
    assert prose_quality(words + ".") == 1.0
    assert prose_quality(words) == 0.75  # no sentence ends
    assert prose_quality(" ".join(["12", "models"] * 1600) + ".") < 0.8  # digits for letters, no function words


def test_explained_code_is_better() -> None:
    bare = "\n".join(f"def function_{name}(value):\n    return value" for name in "abcdefgh")
    told = "\n".join(f'def function_{name}(value):\n    """Give it back."""\n    return value' for name in "abcdefgh")
    assert code_quality(told) > code_quality(bare)


def test_minimum_removes_with_the_score() -> None:
    verdict = score_prose("12 34", QualityStep(minimum=0.5))
    assert (verdict.rule, verdict.detail) == ("score", "0.00 < 0.5")
    assert score_code("x = 1", QualityStep()).annotations.keys() == {"quality"}


def test_ramp() -> None:
    assert [ramp(value, 2, 4) for value in (1, 2, 3, 4, 5)] == [0, 0, 0.5, 1, 1]
