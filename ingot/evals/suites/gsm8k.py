"""GSM8K (Cobbe et al. 2021, arXiv 2110.14168): word problems of primary school, read in three ways (word_problems.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from ingot.envs.tasks.gsm8k import Gsm8k as Environment
from ingot.evals.bases.generations import Item
from ingot.evals.bases.identity import text_ids
from ingot.evals.bases.suite import Subject
from ingot.evals.bases.word_problems import WordProblems

ENVIRONMENT = Environment()  # whose rows are read


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
        problems = [ENVIRONMENT.problem(row, place) for place, row in rows]
        ids = text_ids(question for question, _, _ in problems)
        prompts = self.prompts([row for _, row in rows], subject)
        return [Item(id, prompt, answer) for id, prompt, (_, answer, _) in zip(ids, prompts, problems, strict=True)]
