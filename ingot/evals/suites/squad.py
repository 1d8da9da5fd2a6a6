"""SQuAD: a question on a passage, whose answer is a span of it (Rajpurkar et al. 2016), written by the model."""

from __future__ import annotations

from typing import ClassVar

from ingot.envs.rows import Row, need
from ingot.evals.bases.identity import digest
from ingot.evals.bases.short_answers import Short, ShortAnswerSuite

QUESTION = "\nQuestion: "


class Squad(ShortAnswerSuite):
    """SQuAD: questions on a passage."""

    local: ClassVar[tuple[str, ...]] = ("squad/*.jsonl*", "core_icl/squad_1000.jsonl*")
    hub: ClassVar[tuple[str, ...]] = ("hf:rajpurkar/squad:validation",)
    shot_hub: ClassVar[tuple[str, ...]] = ("hf:rajpurkar/squad:train",)

    def short(self, row: Row, place: str) -> Short:
        """The question of a row; rows of the hub have the question apart from the passage."""
        text, answers = need(row, "context", str, place), row["answers"]
        if "question" in row:
            text = f"Title: {row.get('title', '')}\nBackground: {text}{QUESTION}{row['question']}\nAnswer:"
        accepted = answers["text"] if isinstance(answers, dict) else answers
        return Short(text, tuple(accepted), cluster=digest(text.partition(QUESTION)[0]))
