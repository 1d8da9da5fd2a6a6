"""ARC, the hard part: the questions that retrieval and co-occurrence answered wrong (Clark et al. 2018), as cloze."""

from __future__ import annotations

from typing import ClassVar

from ingot.envs.rows import Row
from ingot.evals.bases.choices import Item
from ingot.evals.bases.exam_suite import ExamSuite
from ingot.evals.suites.arc_easy import arc_item


class ArcChallenge(ExamSuite):
    """ARC-Challenge: the harder science questions of school tests."""

    local: ClassVar[tuple[str, ...]] = ("arc_challenge/test*.jsonl*", "core_icl/arc_challenge.jsonl*")
    hub: ClassVar[tuple[str, ...]] = ("hf:allenai/ai2_arc:ARC-Challenge:test",)
    shot_hub: ClassVar[tuple[str, ...]] = ("hf:allenai/ai2_arc:ARC-Challenge:train",)

    def item(self, row: Row, place: str) -> Item:
        """The question of a row."""
        return arc_item(row, place)
