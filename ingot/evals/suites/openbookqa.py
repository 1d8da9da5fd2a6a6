"""OpenBookQA: elementary science that takes one fact and common sense (Mihaylov et al. 2018); the question alone, as cloze."""

from __future__ import annotations

from typing import ClassVar

from ingot.envs.rows import Row, need
from ingot.evals.bases.choices import Item, labelled_choices
from ingot.evals.bases.exam_suite import ExamSuite
from ingot.evals.bases.gauntlet import is_gauntlet, parts_of


class Openbookqa(ExamSuite):
    """OpenBookQA: elementary science with common sense."""

    local: ClassVar[tuple[str, ...]] = ("openbookqa/test*.jsonl*", "core_icl/openbook_qa.jsonl*")
    hub: ClassVar[tuple[str, ...]] = ("hf:allenai/openbookqa:main:test",)
    shot_hub: ClassVar[tuple[str, ...]] = ("hf:allenai/openbookqa:main:train",)

    def item(self, row: Row, place: str) -> Item:
        """The question of a row."""
        if is_gauntlet(row):
            parts = parts_of(row, place)
            return Item(parts.question, parts.choices, parts.gold, question=parts.question)
        stem = need(row, "question_stem", str, place)
        choices, gold = labelled_choices(row, place)
        return Item(stem, choices, gold, question=stem)
