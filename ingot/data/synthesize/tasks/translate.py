"""Translates a passage; the answer's language is identified if its code is given."""

from __future__ import annotations

from functools import cached_property

from pydantic import Field

from ingot.data.steps.language import LanguageStep
from ingot.data.synthesize.checks import RULES, check_length, check_numbers, cleaned
from ingot.data.synthesize.sample import Refused, SourcePassage, WriterRequest
from ingot.data.synthesize.task import PassageTask


class TranslateTask(PassageTask):
    """Translate a passage."""

    language: str = Field(description="the language's English name, as in German")
    code: str | None = Field(
        default=None,
        description="its ISO 639-1 code: answers that language identification calls something else are refused "
        '(needs `pip install -e ".[data]"`; null: not checked)',
    )
    min_numbers_kept: float = Field(default=0.8, ge=0, le=1, description="share of the passage's numbers to keep")
    min_length_ratio: float = Field(default=0.3, ge=0, description="shortest answer, in characters of the passage")
    max_length_ratio: float = Field(default=3.0, gt=0, description="longest answer, in characters of the passage")

    def ask(self, passage: SourcePassage, number: int) -> list[WriterRequest]:
        prompt = f"Translate the following text into {self.language}. {RULES}\n\nText:\n{passage.text}"
        return [self.request(passage, prompt, language=self.language)]

    def check(self, request: WriterRequest, answer: str) -> str:
        text, given = cleaned(answer), request.passage.text
        check_length(len(text), len(given), self.min_length_ratio, self.max_length_ratio)
        check_numbers(given, text, self.min_numbers_kept)
        if self.code is not None and self.language_of(text) != self.code:
            raise Refused("another language")
        return text

    @cached_property
    def _step(self) -> LanguageStep:
        return LanguageStep()

    def language_of(self, text: str) -> str:
        """The code of a text's language, by the model of the `language` step."""
        from ingot.data.apply import apply

        return str(apply(self._step, [text]).column("language")[0].as_py())
