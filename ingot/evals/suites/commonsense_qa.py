"""CommonsenseQA: everyday concepts (Talmor et al. 2019): letters as the harness has it, or cloze for small models."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from ingot.envs.rows import Row, need
from ingot.evals.bases.choices import LETTERS, Item, Score, labelled_choices, lettered
from ingot.evals.bases.exam_suite import ExamSuite
from ingot.evals.bases.gauntlet import is_gauntlet, parts_of


class CommonsenseQa(ExamSuite):
    """CommonsenseQA: questions on everyday concepts."""

    local: ClassVar[tuple[str, ...]] = ("commonsense_qa/val*.jsonl*", "core_icl/commonsense_qa.jsonl*")
    hub: ClassVar[tuple[str, ...]] = ("hf:tau/commonsense_qa:validation",)
    shot_hub: ClassVar[tuple[str, ...]] = ("hf:tau/commonsense_qa:train",)
    drops_itself: ClassVar[bool] = True
    form: Literal["letters", "cloze"] = Field(
        "letters", description="what is scored: the choices' letters, or their texts"
    )
    scores: tuple[Score, ...] = Field(("raw",), min_length=1, description="how choices are ranked")

    def item(self, row: Row, place: str) -> Item:
        """The question of a row."""
        if is_gauntlet(row):
            parts = parts_of(row, place)
            question, choices, gold = parts.question, parts.choices, parts.gold
        else:
            question = need(row, "question", str, place).strip()
            choices, gold = labelled_choices(row, place)
        if self.form == "cloze":
            return Item(f"Question: {question}\nAnswer:", choices, gold, question=question)
        text, letters = f"Question: {question}\n{lettered(choices)}\nAnswer:", tuple(LETTERS[: len(choices)])
        return Item(text, letters, gold, question=question, options=choices)
