"""LogiQA: logical reading of exams for civil servants (Liu et al. 2020); choices are listed, and their texts are scored."""

from __future__ import annotations

from typing import ClassVar

from ingot.envs.rows import Row, need
from ingot.evals.bases.choices import Item, gold_index, lettered
from ingot.evals.bases.exam_suite import ExamSuite
from ingot.evals.bases.gauntlet import is_gauntlet, parts_of
from ingot.evals.bases.identity import digest


class Logiqa(ExamSuite):
    """LogiQA: logical reading."""

    local: ClassVar[tuple[str, ...]] = ("logiqa/test*.jsonl*", "core_icl/logi_qa.jsonl*")
    hub: ClassVar[tuple[str, ...]] = ("hf:EleutherAI/logiqa:logiqa:test",)
    shot_hub: ClassVar[tuple[str, ...]] = ("hf:EleutherAI/logiqa:logiqa:train",)

    def item(self, row: Row, place: str) -> Item:
        """The question of a row."""
        if is_gauntlet(row):
            parts = parts_of(row, place)
            passage, question, choices, gold = parts.context, parts.question, parts.choices, parts.gold
        else:
            passage, question = need(row, "context", str, place), need(row, "question", str, place)
            choices = tuple(need(row, "options", list, place))
            gold = gold_index(row.get("label"), len(choices), place)
        text = f"Passage: {passage}\nQuestion: {question}\nChoices:\n{lettered(choices)}\nAnswer:"
        return Item(text, choices, gold, cluster=digest(passage), question=f"{passage}\n\n{question}")
