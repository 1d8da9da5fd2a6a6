"""Free continuations of given texts: not scored, kept so that a person can read what a stage did to the model."""

from __future__ import annotations

from typing import ClassVar, Self

from pydantic import Field, model_validator

from ingot.evals.bases.suite import Measured, Measuring, Subject, Suite
from ingot.evals.engine.prompt import Form
from ingot.evals.engine.request import Generation, PlainText
from ingot.evals.scores.scores import Sample


class Continuations(Suite):
    """Greedy continuations of given texts, kept as samples for the report."""

    forms: ClassVar[tuple[Form, ...]] = ()
    thinks: ClassVar[bool] = False

    texts: tuple[str, ...] = Field(min_length=1, description="texts that the model continues")
    tokens: int = Field(48, ge=1, description="tokens of each continuation")

    @model_validator(mode="after")
    def _only_samples(self) -> Self:
        if given := self.chosen("name", "held_out"):
            raise ValueError(
                f"{', '.join(given)}: continuations are read by people, there are no numbers; leave it out"
            )
        return self

    def measure(self, subject: Subject) -> Measuring:
        """No numbers, only samples."""
        texts = subject.some(self.texts)
        written = yield [Generation(PlainText(text), max_new_tokens=self.tokens) for text in texts]
        return Measured(
            samples=[
                Sample(f"prompt-{number}", "continuation", text, each.text)
                for number, (text, each) in enumerate(zip(texts, written, strict=True))
            ]
        )
