"""GPQA: questions of experts that a search does not answer (Rein et al. 2023); `part` says which of its files.

The right choice comes first in the file, so choices are put into another order: with `random.Random(0)`, one permutation a row,
as simple-evals has it. (The harness draws from the process's generator, so its letters depend on what was drawn before.)
The prompts are the harness's, one without and one with worked examples, and the letters in brackets are scored.
"""

from __future__ import annotations

import random
from typing import ClassVar, Literal

from pydantic import Field

from ingot.envs.rows import Row, need
from ingot.evals.bases.choices import LETTERS, Item, Score, lettered
from ingot.evals.bases.exam_suite import ExamSuite
from ingot.evals.bases.file_suite import rows_of
from ingot.evals.bases.suite import Subject

ANSWERS = ("Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")
ORDER = "order"  # a column of ours: the permutation of the answers
ALONE = "What is the correct answer to this question:"
AFTER_SHOTS = "Question: "
HEAD = (
    "Here are some example questions from experts. Answer the final question yourself, following the format of the previous "
    "questions exactly.\n"
)


class Gpqa(ExamSuite):
    """GPQA: questions of experts that a search does not answer."""

    local: ClassVar[tuple[str, ...]] = ("gpqa/gpqa_{part}.jsonl*", "gpqa/{part}.jsonl*")
    hub: ClassVar[tuple[str, ...]] = ("hf:Idavidrein/gpqa:gpqa_{part}:train",)
    part: Literal["diamond", "main", "extended"] = Field("diamond", description="198, 448 or 546 questions")
    scores: tuple[Score, ...] = Field(("raw",), min_length=1, description="how choices are ranked")

    def all_rows(self, subject: Subject) -> list[tuple[str, Row]]:
        """The rows, each with the order of its choices."""
        local = tuple(pattern.format(part=self.part) for pattern in self.local)
        hub = tuple(name.format(part=self.part) for name in self.hub)
        rows = rows_of(self.files or local, hub, subject.data, given=bool(self.files), suite=self.short_name)
        generator = random.Random(0)
        return [(place, {**row, ORDER: generator.sample(range(4), 4)}) for place, row in rows]

    def item(self, row: Row, place: str) -> Item:
        """The question of a row, its choices in their order."""
        answers = [cleaned(need(row, column, str, place)) for column in ANSWERS]
        order = row[ORDER]
        listed = lettered([answers[number] for number in order], "({letter}) {choice}")
        question = f"{AFTER_SHOTS if self.shots else ALONE}{need(row, 'Question', str, place)}"
        return Item(
            f"{question}\nChoices:\n{listed}\nAnswer:",
            tuple(f"({letter})" for letter in LETTERS[:4]),
            order.index(0),
            description=HEAD if self.shots else "",
            question=row["Question"].strip(),
            options=tuple(answers[number] for number in order),
        )


def cleaned(answer: str) -> str:
    """An answer as the harness shows it."""
    return answer.strip().replace(" [title]", ". ").replace("  ", " ")
