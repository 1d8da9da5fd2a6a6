"""Questions with choices in files of one's own.

    {suite: choices, name: chemistry, files: [questions.jsonl], form: letters, shots: 5, shot_files: [examples.jsonl]}

A row has `question`, `choices` (texts) and `answer` (a number from 0, or a letter); `context`, if there is one, stands before the
question, and questions with the same context are one cluster of the standard error.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ingot.envs.rows import Row, need
from ingot.evals.bases.choices import LETTERS, Item, gold_index, lettered
from ingot.evals.bases.exam_suite import ExamSuite
from ingot.evals.bases.identity import digest


class Choices(ExamSuite):
    """Questions with choices, in files of your own."""

    form: Literal["cloze", "letters"] = Field(
        "cloze",
        description="cloze: the choices' texts are scored; letters: they are listed, and their letters are scored",
    )
    description: str = Field("", description="what stands before everything; the system message of a chat model")

    def item(self, row: Row, place: str) -> Item:
        """The question of a row."""
        question, choices = need(row, "question", str, place).strip(), need(row, "choices", list, place)
        gold, context = gold_index(row.get("answer"), len(choices), place), row.get("context") or ""
        head = f"{context}\nQuestion: {question}\n" if context else f"Question: {question}\n"
        letters = self.form == "letters"
        return Item(
            f"{head}{lettered(choices)}\nAnswer:" if letters else f"{head}Answer:",
            tuple(LETTERS[: len(choices)]) if letters else tuple(map(str, choices)),
            gold,
            description=self.description,
            group=str(row.get("group") or ""),
            cluster=digest(context) if context else "",
            question=f"{context}\n\n{question}" if context else question,
            options=tuple(map(str, choices)) if letters else (),
        )
