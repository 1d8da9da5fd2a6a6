"""Turns mathematical text into worked study notes."""

from __future__ import annotations

from pydantic import Field

from ingot.data.synthesize.checks import RULES, check_length, check_numbers, cleaned
from ingot.data.synthesize.sample import SourcePassage, WriterRequest
from ingot.data.synthesize.task import PassageTask


class NotesTask(PassageTask):
    """Turn mathematical text into worked study notes (as Kimi K2 and SwallowMath, arXiv 2505.02881)."""

    min_numbers_kept: float = Field(default=0.6, ge=0, le=1, description="share of the passage's numbers to keep")
    min_length_ratio: float = Field(default=0.4, ge=0, description="shortest answer, in words of the passage")
    max_length_ratio: float = Field(default=4.0, gt=0, description="longest answer, in words of the passage")

    def ask(self, passage: SourcePassage, number: int) -> list[WriterRequest]:
        prompt = (
            "Turn the following text into study notes for mathematics: state what is given and what is sought, name the ideas "
            f"that are used, and go through every step of the reasoning with its calculation. {RULES}\n\nText:\n{passage.text}"
        )
        return [self.request(passage, prompt)]

    def check(self, request: WriterRequest, answer: str) -> str:
        text, given = cleaned(answer), request.passage.text
        check_length(len(text.split()), len(given.split()), self.min_length_ratio, self.max_length_ratio)
        check_numbers(given, text, self.min_numbers_kept)
        return text
