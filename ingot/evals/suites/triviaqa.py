"""TriviaQA: questions of quizzes, without a passage (Joshi et al. 2017).

The answer up to the first line end, full stop or comma is right if it is one of the aliases, in any case of letters and without
punctuation, as the harness has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from pydantic import Field

from ingot.envs.rows import Row, need
from ingot.evals.bases.short_answers import NO_PUNCTUATION, Measure, Short, ShortAnswerSuite


def is_alias(written: str, aliases: Sequence[str]) -> float:
    """Whether it is one of the aliases."""
    answer = written.strip().lower().translate(NO_PUNCTUATION)
    return float(any(answer == alias.lower().translate(NO_PUNCTUATION) for alias in aliases))


class Triviaqa(ShortAnswerSuite):
    """TriviaQA: questions of quizzes, from memory."""

    local: ClassVar[tuple[str, ...]] = ("triviaqa/*.jsonl*", "core_icl/triviaqa_sm_sub.jsonl*")
    hub: ClassVar[tuple[str, ...]] = ("hf:mandarjoshi/trivia_qa:rc.nocontext:validation",)
    shot_hub: ClassVar[tuple[str, ...]] = ("hf:mandarjoshi/trivia_qa:rc.nocontext:train",)
    measures: ClassVar[Mapping[str, Measure]] = {"exact_match": is_alias}
    stop: ClassVar[tuple[str, ...]] = ("\n", ".", ",")
    max_new_tokens: int = Field(256, ge=1, description="tokens of an answer at most")

    def short(self, row: Row, place: str) -> Short:
        """The question of a row."""
        if "aliases" in row:
            return Short(need(row, "context", str, place), tuple(row["aliases"]) or (row["answer"],))
        question, answer = need(row, "question", str, place), need(row, "answer", dict, place)
        return Short(f"Question: {question}?\nAnswer:", tuple(answer["aliases"]))
