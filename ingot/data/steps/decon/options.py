"""Options of the step `decon`."""

from __future__ import annotations

from abc import ABC
from typing import ClassVar, Self

from pydantic import Field, model_validator

from ingot.data.contamination.evals import EvalFiles, file_fingerprints
from ingot.data.contamination.step import ContaminationStep

QUESTION_WEIGHT, ANSWER_WEIGHT, PASSAGE_WEIGHT = 0.7, 0.2, 0.1  # decon's, of an eval that has all three
STORED_QUESTION_SHARE = 0.3  # matches with less of the question are not stored

ANSWERS = ("answer_ngram", "short_answer", "answer_window", "long_answer_window")
PASSAGES = ("passage_ngram", "passage_window", "passage_misses")


class DeconOptions(ContaminationStep, ABC):
    """What is searched for, where, and how sure a match must be."""

    decides: ClassVar[frozenset[str]] = frozenset({"threshold", "perfect_until", "threshold_from"})

    tokens: str = Field(
        default="words",
        description="what n-grams are made of: `words`, or a file with a vocabulary: tiktoken ranks (.tiktoken, "
        "cl100k as in decon) or tokenizer.json",
    )
    question_ngram: int = Field(default=5, ge=1, description="tokens in an n-gram of a question")
    answer_ngram: int = Field(default=3, ge=1, description="tokens in an n-gram of an answer (Olmo 3 web: 2)")
    passage_ngram: int = Field(default=4, ge=1, description="tokens in an n-gram of a passage")
    sample_every: int = Field(default=10, ge=1, description="look up every n-th n-gram of a document")
    max_misses: int = Field(default=11, ge=1, description="misses in a row that end the match of an eval")
    min_eval_tokens: int = Field(default=20, ge=0, description="shorter evals are not searched for")
    min_eval_words: int = Field(default=4, ge=0, description="evals with fewer different words are not searched for")
    answers: bool = Field(default=True, description="look for answers behind the question")
    passages: bool = Field(default=True, description="look for passages before the question (Olmo 3 web: false)")
    short_answer: int = Field(
        default=3, ge=0, description="answers of at most this many tokens must occur exactly (Olmo 3 web: 1)"
    )
    answer_window: int = Field(
        default=50, ge=1, description="tokens behind the question where a short answer may begin (Olmo 3 web: 20)"
    )
    long_answer_window: int = Field(
        default=100, ge=1, description="smallest window of a long answer; it is at least twice the answer (web: 20)"
    )
    passage_window: int = Field(
        default=100, ge=1, description="smallest window of a passage; it is at least twice the passage"
    )
    passage_misses: int = Field(default=2, ge=0, description="misses in a row that a passage survives")
    threshold: float = Field(
        default=0.8, gt=0, le=1, description="a document with a score of at least this goes (Olmo 3 web: 0.88)"
    )
    perfect_until: int = Field(
        default=20, ge=0, description="evals of at most this many tokens need a score of 1 (Olmo 3 web: 25)"
    )
    threshold_from: int = Field(
        default=50, ge=0, description="evals of at least this many tokens need `threshold`; linear between the two"
    )

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.threshold_from < self.perfect_until:
            raise ValueError(f"threshold_from {self.threshold_from} is below perfect_until {self.perfect_until}")
        for sought, field, options in ((self.answers, "answer", ANSWERS), (self.passages, "passage", PASSAGES)):
            if sought:
                continue
            self.refuse(*options, because=f"{field}s: false looks for none")
            for number, each in enumerate(self.against):
                if isinstance(each, EvalFiles) and each.chosen(field):
                    raise ValueError(f"against.{number}.{field}: {field}s: false looks for none; leave it out")
        if self.min_question_share() < STORED_QUESTION_SHARE:
            least = QUESTION_WEIGHT * STORED_QUESTION_SHARE + ANSWER_WEIGHT + PASSAGE_WEIGHT
            raise ValueError(f"threshold {self.threshold} is below {least:.2f}: such weak matches are not stored")
        return self

    def min_question_share(self) -> float:
        """The least of a question that can reach the threshold when answer and passage are there in full."""
        return (self.threshold - ANSWER_WEIGHT - PASSAGE_WEIGHT) / QUESTION_WEIGHT

    def outside(self) -> dict[str, str]:
        return super().outside() | ({} if self.tokens == "words" else file_fingerprints([self.tokens]))
