"""Social IQa: why people do what they do, and what follows (Sap et al. 2019), as cloze."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from ingot.envs.rows import Row, need
from ingot.evals.bases.choices import Item, Score, gold_index
from ingot.evals.bases.exam_suite import ExamSuite
from ingot.evals.bases.gauntlet import is_gauntlet, parts_of
from ingot.evals.bases.identity import digest


class Siqa(ExamSuite):
    """Social IQa: why people do what they do."""

    local: ClassVar[tuple[str, ...]] = ("siqa/val*.jsonl*", "core_icl/siqa.jsonl*")
    hub: ClassVar[tuple[str, ...]] = ("hf:lighteval/siqa:validation",)
    shot_hub: ClassVar[tuple[str, ...]] = ("hf:lighteval/siqa:train",)
    drops_itself: ClassVar[bool] = True
    scores: tuple[Score, ...] = Field(("raw",), min_length=1, description="how choices are ranked")

    def item(self, row: Row, place: str) -> Item:
        """The question of a row."""
        if is_gauntlet(row):
            parts = parts_of(row, place)
            context, question, answers, gold = parts.context, parts.question, parts.choices, parts.gold
        else:
            context, question = need(row, "context", str, place), need(row, "question", str, place)
            answers = tuple(need(row, f"answer{letter}", str, place) for letter in "ABC")
            gold = gold_index(int(row["label"]) - 1, 3, place)
        asked = f"{context} {question}"
        return Item(f"Q: {asked}\nA:", answers, gold, cluster=digest(context), question=asked)
