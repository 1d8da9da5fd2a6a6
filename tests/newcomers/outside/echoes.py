"""A suite of my own: does the model go on with a word that it has read several times?"""

from __future__ import annotations

from pydantic import Field

from ingot.evals.bases.suite import Measured, Measuring, Subject, Suite
from ingot.evals.engine.request import Generation, PlainText
from ingot.evals.scores.scores import metric_of_units


class Echoes(Suite):
    """The share of words that greedy decoding repeats."""

    forms, thinks = (), False  # plain texts: neither `form` nor `thinking` changes what is asked
    words: tuple[str, ...] = Field(("main", "return", "the"), min_length=1, description="the words")
    times: int = Field(4, ge=1, description="how often each is read")

    def measure(self, subject: Subject) -> Measuring:
        words = subject.some(self.words)  # no more than `limit`
        answers = yield [Generation(PlainText(f" {word}" * self.times), max_new_tokens=8) for word in words]
        units = {word: float(each.text.split()[:1] == [word]) for word, each in zip(words, answers, strict=True)}
        return Measured([metric_of_units("echoes", units, f"Words repeated after {self.times}")])
