"""ARC, the easy part: science questions of school tests (Clark et al. 2018), as cloze."""

from __future__ import annotations

from typing import ClassVar

from ingot.envs.rows import Row, need
from ingot.evals.bases.choices import Item, labelled_choices
from ingot.evals.bases.exam_suite import ExamSuite
from ingot.evals.bases.gauntlet import is_gauntlet, parts_of


class ArcEasy(ExamSuite):
    """ARC-Easy: science questions of school tests."""

    local: ClassVar[tuple[str, ...]] = ("arc_easy/test*.jsonl*", "core_icl/arc_easy.jsonl*")
    hub: ClassVar[tuple[str, ...]] = ("hf:allenai/ai2_arc:ARC-Easy:test",)
    shot_hub: ClassVar[tuple[str, ...]] = ("hf:allenai/ai2_arc:ARC-Easy:train",)

    def item(self, row: Row, place: str) -> Item:
        """The question of a row."""
        return arc_item(row, place)


def arc_item(row: Row, place: str) -> Item:
    """A question of either part."""
    if is_gauntlet(row):
        parts = parts_of(row, place)
        question, choices, gold = parts.question, parts.choices, parts.gold
    else:
        question = need(row, "question", str, place)
        choices, gold = labelled_choices(row, place)
    return Item(f"Question: {question}\nAnswer:", choices, gold, question=question)
