"""AQuA: algebra word problems with five choices (Ling et al. 2017): letters, or cloze.

A file that holds several splits says in the column `split` which rows are for testing; worked examples are then of the others.
"""

from __future__ import annotations

import re
from typing import ClassVar, Literal

from pydantic import Field

from ingot.envs.rows import Row, need
from ingot.evals.bases.choices import LETTERS, Item, Score, gold_index, lettered
from ingot.evals.bases.exam_suite import ExamSuite
from ingot.evals.bases.suite import Subject

MARK = re.compile(r"^\s*[A-Z]\s*\)\s*")


class Aqua(ExamSuite):
    """AQuA: algebra word problems with choices."""

    local: ClassVar[tuple[str, ...]] = ("aqua/*test*.jsonl*",)
    hub: ClassVar[tuple[str, ...]] = ("hf:deepmind/aqua_rat:raw:test",)
    shot_hub: ClassVar[tuple[str, ...]] = ("hf:deepmind/aqua_rat:raw:train",)
    form: Literal["letters", "cloze"] = Field(
        "letters", description="what is scored: the choices' letters, or their texts"
    )
    scores: tuple[Score, ...] = Field(("raw",), min_length=1, description="how choices are ranked")

    def all_rows(self, subject: Subject) -> list[tuple[str, Row]]:
        """The rows for testing."""
        return [each for each in super().all_rows(subject) if each[1].get("split", "test") == "test"]

    def pool(self, subject: Subject) -> tuple[list[Item], bool]:
        """The rows of the file that are not for testing, if there are any."""
        others = [each for each in super().all_rows(subject) if each[1].get("split", "test") != "test"]
        if self.shot_files or not others:
            return super().pool(subject)
        return [self.item(row, place) for place, row in others], False

    def item(self, row: Row, place: str) -> Item:
        """The problem of a row."""
        choices = tuple(MARK.sub("", choice) for choice in need(row, "options", list, place))
        gold = gold_index(row.get("correct"), len(choices), place)
        question = need(row, "question", str, place).strip()
        if self.form == "cloze":
            return Item(f"Question: {question}\nAnswer:", choices, gold, question=question)
        text, letters = f"Question: {question}\n{lettered(choices)}\nAnswer:", tuple(LETTERS[: len(choices)])
        return Item(text, letters, gold, question=question, options=choices)
