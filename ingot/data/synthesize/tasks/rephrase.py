"""Says a passage again in another style; at most twice."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from ingot.data.synthesize.checks import RULES, check_length, check_numbers, cleaned, copied
from ingot.data.synthesize.sample import Refused, SourcePassage, WriterRequest
from ingot.data.synthesize.task import PassageTask

Style = Literal["plain", "encyclopedia", "textbook", "dialogue"]
STYLES = {
    "plain": "in plain words that a twelve-year-old understands, in short sentences",
    "encyclopedia": "in the neutral, precise style of an encyclopedia article",
    "textbook": "as a section of a textbook that explains each idea before it uses it",
    "dialogue": "as a conversation of questions and answers between a curious student and an expert",
}


class RephraseTask(PassageTask):
    """Say a passage again in another style (WRAP, arXiv 2401.16380); at most twice, as Kimi K2 does (arXiv 2507.20534)."""

    styles: list[Style] = Field(
        default=["encyclopedia", "dialogue"], min_length=1, description="a passage gets them in turn"
    )
    per_passage: int = Field(default=1, ge=1, le=2, description="rephrasings of a passage, each in another style")
    min_length_ratio: float = Field(default=0.4, ge=0, description="shortest answer, in words of the passage")
    max_length_ratio: float = Field(default=2.5, gt=0, description="longest answer, in words of the passage")
    min_numbers_kept: float = Field(
        default=0.8, ge=0, le=1, description="share of the passage's numbers that the answer must still have"
    )
    max_copied: float = Field(
        default=0.5, ge=0, le=1, description="largest share of the answer's 8-grams of words that stand in the passage"
    )

    @model_validator(mode="after")
    def _enough_styles(self) -> Self:
        if self.per_passage > len(set(self.styles)):
            raise ValueError(f"{self.per_passage} rephrasings of a passage need as many different styles")
        return self

    def ask(self, passage: SourcePassage, number: int) -> list[WriterRequest]:
        """`per_passage` requests in different styles; the passage's number picks the first style."""
        requests = []
        for variant in range(self.per_passage):
            style = self.styles[(number + variant) % len(self.styles)]
            prompt = f"Rewrite the following text {STYLES[style]}. {RULES}\n\nText:\n{passage.text}"
            requests.append(self.request(passage, prompt, variant, style=style))
        return requests

    def check(self, request: WriterRequest, answer: str) -> str:
        text, given = cleaned(answer), request.passage.text
        check_length(len(text.split()), len(given.split()), self.min_length_ratio, self.max_length_ratio)
        check_numbers(given, text, self.min_numbers_kept)
        if copied(given, text) > self.max_copied:
            raise Refused("copied")
        return text
