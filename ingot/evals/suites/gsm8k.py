"""GSM8K (Cobbe et al. 2021, arXiv 2110.14168): word problems of primary school, read in three ways (word_problems.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from ingot.envs.rows import need
from ingot.evals.bases.generations import Item, text_ids
from ingot.evals.bases.suite import Subject
from ingot.evals.bases.word_problems import WordProblems, number_of


class Gsm8k(WordProblems):
    """Word problems of primary school, answered by a number."""

    local: ClassVar[tuple[str, ...]] = ("gsm8k/test*.jsonl*", "gsm8k/test*.parquet")
    hub: ClassVar[tuple[str, ...]] = ("hf:openai/gsm8k:main:test",)
    labels: ClassVar[Mapping[str, str]] = {
        "verified": "GSM8K, answer compared as mathematics",
        "flexible": "GSM8K, last number",
        "strict": "GSM8K, number after ####",
    }

    def items(self, subject: Subject) -> Sequence[Item]:
        rows = self.rows(subject)
        questions = [need(row, "question", str, place) for place, row in rows]
        prompts = self.prompts([row for _, row in rows], subject)
        return [
            Item(id, prompt, number_of(row, place))
            for id, prompt, (place, row) in zip(text_ids(questions), prompts, rows, strict=True)
        ]
