"""Jeopardy: clues of the quiz show with their category, from memory; the answer is one phrase."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from ingot.envs.rows import Row, need
from ingot.evals.bases.short_answers import Short, ShortAnswerSuite


class Jeopardy(ShortAnswerSuite):
    """Jeopardy: clues of the quiz show, from memory."""

    local: ClassVar[tuple[str, ...]] = ("jeopardy/*.jsonl*", "core_icl/jeopardy_all.jsonl*")
    shots: int = Field(10, ge=0, description="worked examples before each question")
    max_new_tokens: int = Field(24, ge=1, description="tokens of an answer at most")

    def short(self, row: Row, place: str) -> Short:
        """The clue of a row."""
        clue = need(row, "context", str, place).strip()
        return Short(f"{clue}\nAnswer:", (need(row, "continuation", str, place).strip(),))
