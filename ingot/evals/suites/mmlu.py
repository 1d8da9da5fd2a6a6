"""MMLU: 57 subjects from school to professional exams (Hendrycks et al. 2021), five worked examples, letters.

Prompt and score are the harness's: the question stripped, the subject's five examples of the dev file in their order, accuracy as
the mean over all questions. The original code differs in spaces. Letters are near chance for models below about a billion
parameters: mmlu_cloze scores the choices' texts instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from ingot.envs.rows import Row, need
from ingot.evals.bases.choices import LETTERS, Item, Score, gold_index, lettered
from ingot.evals.bases.exam_suite import ExamSuite
from ingot.evals.bases.few_shot import Draw
from ingot.evals.bases.spread import in_turn
from ingot.evals.bases.suite import Subject


class Mmlu(ExamSuite):
    """MMLU: 57 subjects, 5 worked examples, the choices' letters."""

    local: ClassVar[tuple[str, ...]] = ("mmlu/test*.jsonl*",)
    hub: ClassVar[tuple[str, ...]] = ("hf:cais/mmlu:all:test",)
    shot_local: ClassVar[tuple[str, ...]] = ("mmlu/dev.jsonl*",)
    shot_hub: ClassVar[tuple[str, ...]] = ("hf:cais/mmlu:all:dev",)
    shots: int = Field(5, ge=0, description="worked examples before each question, of its subject")
    draw: Draw = Field("first", description="worked examples: the first of the subject, or random ones")
    scores: tuple[Score, ...] = Field(("raw",), min_length=1, description="how choices are ranked")

    def rows(self, subject: Subject) -> list[tuple[str, Row]]:
        """The rows that are asked; a limit takes from all subjects."""
        return self.some(in_turn(self.all_rows(subject), lambda row: row.get("subject")), subject)

    def item(self, row: Row, place: str) -> Item:
        """The question of a row."""
        choices = [str(choice) for choice in need(row, "choices", list, place)]
        return self.exam_item(
            need(row, "subject", str, place),
            need(row, "question", str, place),
            choices,
            gold_index(row.get("answer"), len(choices), place),
        )

    def exam_item(self, subject: str, question: str, choices: Sequence[str], gold: int) -> Item:
        """A question of a subject, as it is asked."""
        return Item(
            f"{question.strip()}\n{lettered(choices)}\nAnswer:",
            tuple(LETTERS[: len(choices)]),
            gold,
            description=head_of(subject),
            group=subject,
            pool=subject,
            question=question.strip(),
            options=tuple(choices),
        )


def head_of(subject: str, questions: str = "multiple choice questions") -> str:
    """What stands before the questions of a subject."""
    return f"The following are {questions} (with answers) about {subject.replace('_', ' ')}.\n\n"
