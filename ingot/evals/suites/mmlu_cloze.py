"""MMLU as cloze: the texts of the choices are scored, not their letters; what small models can do."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from ingot.evals.bases.choices import Item, Score
from ingot.evals.suites.mmlu import Mmlu, head_of


class MmluCloze(Mmlu):
    """MMLU for small models: the choices' texts."""

    shots: int = Field(0, ge=0, description="worked examples before each question, of its subject")
    scores: tuple[Score, ...] = Field(("raw", "character"), min_length=1, description="how choices are ranked")

    def exam_item(self, subject: str, question: str, choices: Sequence[str], gold: int) -> Item:
        """A question of a subject, without its choices."""
        head = head_of(subject, "questions")
        return Item(
            f"Question: {question.strip()}\nAnswer:",
            tuple(choices),
            gold,
            description=head,
            group=subject,
            pool=subject,
            question=question.strip(),
        )
