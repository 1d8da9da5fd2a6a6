"""LAMBADA: the last word of a passage, which only the whole passage tells (Paperno et al. 2016, OpenAI's version).

accuracy    the word is what greedy decoding writes
perplexity  exp(-mean log p(word)), P; a passage's unit is P (1 - log p - mean), whose mean is P and whose standard error is
            that of P to first order
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from ingot.envs.rows import Row, need
from ingot.evals.bases.file_suite import FileSuite
from ingot.evals.bases.identity import digest, unique
from ingot.evals.bases.suite import Measured, Measuring, Subject
from ingot.evals.engine.request import Likelihood, Question
from ingot.evals.scores.scores import KEPT_SAMPLES, Sample, metric_of_units


class Lambada(FileSuite):
    """LAMBADA: the last word of a passage."""

    local: ClassVar[tuple[str, ...]] = ("lambada/test*.jsonl*", "core_icl/lambada_openai.jsonl*")
    hub: ClassVar[tuple[str, ...]] = ("hf:EleutherAI/lambada_openai:default:test",)

    def measure(self, subject: Subject) -> Measuring:
        """Ask for the likelihood of every last word."""
        passages = [passage_of(row, place) for place, row in self.rows(subject)]
        answers = yield [Likelihood(Question(text), word) for text, word in passages]
        ids = unique(digest(text, word) for text, word in passages)
        greedy = {name: float(answer.greedy) for name, answer in zip(ids, answers, strict=True)}
        surprises = dict(zip(ids, perplexity_units([answer.logprob for answer in answers]), strict=True))
        samples = [
            Sample(name, "lambada", text, None, word, answer.greedy)
            for name, (text, word), answer in list(zip(ids, passages, answers, strict=True))[:KEPT_SAMPLES]
        ]
        return Measured(
            [
                metric_of_units("lambada/accuracy", greedy, "LAMBADA, accuracy", chance=0.0),
                metric_of_units("lambada/perplexity", surprises, "LAMBADA, perplexity of the word", False),
            ],
            samples,
        )


def passage_of(row: Row, place: str) -> tuple[str, str]:
    """A passage and its last word."""
    if "continuation" in row:
        return need(row, "context", str, place), need(row, "continuation", str, place).strip()
    text, _, word = need(row, "text", str, place).rpartition(" ")
    return text, word


def perplexity_units(logprobs: Sequence[float]) -> list[float]:
    """A value for each text, whose mean is exp(-mean of the log-probabilities)."""
    mean = math.fsum(logprobs) / len(logprobs)
    perplexity = math.exp(-mean)
    return [perplexity * (1 + mean - logprob) for logprob in logprobs]
