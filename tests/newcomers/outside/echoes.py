"""A suite of my own: does the model go on with a word that it has read several times?"""

from __future__ import annotations

from pydantic import Field

from ingot.evals.scores import metric_of_units
from ingot.evals.suite import Measured, Subject, Suite
from ingot.inference.sampling import Sampling


class Echoes(Suite):
    """The share of words that greedy decoding repeats."""

    words: tuple[str, ...] = Field(("main", "return", "the"), min_length=1, description="the words")
    times: int = Field(4, ge=1, description="how often each is read")

    def measure(self, subject: Subject) -> Measured:
        prompts = [subject.tokenizer.encode(f" {word}" * self.times) for word in self.words]
        expected = [subject.tokenizer.encode(f" {word}") for word in self.words]
        samplings = [Sampling(max_new_tokens=len(tokens), temperature=0.0) for tokens in expected]
        subject.stop.check()
        done = subject.engine.complete(prompts, samplings)
        right = [list(each.tokens) == tokens for each, tokens in zip(done, expected, strict=True)]
        units = {word: float(one) for word, one in zip(self.words, right, strict=True)}
        return Measured([metric_of_units("echoes", units, f"Words repeated after {self.times}")])
