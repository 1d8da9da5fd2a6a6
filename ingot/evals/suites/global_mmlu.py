"""Global-MMLU: MMLU in 42 languages (Singh et al. 2024), letters; `languages` says which.

The accuracy of each language is a metric, and the mean over all questions. Translations of one question are one cluster.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from ingot.envs.rows import Row, need
from ingot.evals.bases.choices import LETTERS, Item, Score, gold_index, lettered
from ingot.evals.bases.exam_suite import ExamSuite
from ingot.evals.bases.few_shot import Draw
from ingot.evals.bases.file_suite import rows_of
from ingot.evals.bases.spread import in_turn
from ingot.evals.bases.suite import Subject

OPTIONS = ("option_a", "option_b", "option_c", "option_d")
LANGUAGE = "language"  # a column of ours


class GlobalMmlu(ExamSuite):
    """Global-MMLU: MMLU in other languages."""

    local: ClassVar[tuple[str, ...]] = ("global_mmlu/{language}/test*.jsonl*",)
    hub: ClassVar[tuple[str, ...]] = ("hf:CohereLabs/Global-MMLU:{language}:test",)
    shot_local: ClassVar[tuple[str, ...]] = ("global_mmlu/{language}/dev*.jsonl*",)
    shot_hub: ClassVar[tuple[str, ...]] = ("hf:CohereLabs/Global-MMLU:{language}:dev",)
    languages: tuple[str, ...] = Field(
        ("en", "de", "fr", "hi", "sw", "zh"), min_length=1, description="codes of languages"
    )
    draw: Draw = Field("first", description="worked examples: the first of the subject, or random ones")
    scores: tuple[Score, ...] = Field(("raw",), min_length=1, description="how choices are ranked")
    by_group: bool = Field(True, description="also the accuracy of each language")

    def all_rows(self, subject: Subject) -> list[tuple[str, Row]]:
        """The questions of all languages."""
        return super().all_rows(subject) if self.files else self._of_languages(self.local, self.hub, subject)

    def rows(self, subject: Subject) -> list[tuple[str, Row]]:
        """The rows that are asked; a limit takes from all subjects, and the same questions of all languages."""
        rows = in_turn(self.all_rows(subject), lambda row: (row.get(LANGUAGE), row.get("subject")))
        return self.some(in_turn(rows, lambda row: row.get(LANGUAGE)), subject)

    def pool(self, subject: Subject) -> tuple[list[Item], bool]:
        """The dev rows of all languages."""
        if self.shot_files:
            return super().pool(subject)
        rows = self._of_languages(self.shot_local, self.shot_hub, subject)
        return [self.item(row, place) for place, row in rows], False

    def item(self, row: Row, place: str) -> Item:
        """The question of a row."""
        choices = [need(row, option, str, place) for option in OPTIONS]
        question = need(row, "question", str, place).strip()
        language, about = str(row.get(LANGUAGE) or ""), str(row.get("subject") or "")
        return Item(
            f"{question}\n{lettered(choices)}\nAnswer:",
            tuple(LETTERS[:4]),
            gold_index(row.get("answer"), 4, place),
            group=language,
            pool=f"{language}/{about}",
            cluster=str(row.get("sample_id") or ""),
            question=question,
            options=tuple(choices),
        )

    def _of_languages(self, local: tuple[str, ...], hub: tuple[str, ...], subject: Subject) -> list[tuple[str, Row]]:
        rows: list[tuple[str, Row]] = []
        for language in self.languages:
            patterns = [pattern.format(language=language) for pattern in local]
            names = [name.format(language=language) for name in hub]
            found = rows_of(patterns, names, subject.data, suite=self.short_name)
            rows += [(place, {**row, LANGUAGE: language}) for place, row in found]
        return rows
