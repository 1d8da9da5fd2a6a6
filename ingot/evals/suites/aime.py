r"""AIME, the American Invitational Mathematics Examination: 30 problems a year, whose answers are whole numbers from 0 to 999.

The model may think long and answers in \boxed{}; a text in which no box, line or sentence marks an answer is read for its last
number between dollar signs, as the LM evaluation harness does. With 30 questions one answer each says little, so reports give
avg@k with k of 16 and more at a temperature of 0.6 to 1.0, and cons@k.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

from pydantic import Field

from ingot.envs.rows import need
from ingot.envs.verifiers.math.same_answer import extract_answer
from ingot.evals.bases.generations import GeneratedSuite, Grade, Item
from ingot.evals.bases.identity import text_ids
from ingot.evals.bases.suite import Subject
from ingot.evals.bases.word_problems import BOXED
from ingot.evals.engine.request import Question
from ingot.workspace.errors import DataError

DOLLARS = re.compile(r"\$([^$\n]*)\$")
INTEGER = re.compile(r"\s*0*(\d{1,3})\s*", re.ASCII)


class Aime(GeneratedSuite):
    """Problems of the AIME, answered by a whole number below 1,000."""

    local: ClassVar[tuple[str, ...]] = ("aime/*.jsonl*", "aime/*.parquet")
    hub: ClassVar[tuple[str, ...]] = ("hf:HuggingFaceH4/aime_2024:train",)
    labels: ClassVar[Mapping[str, str]] = {"accuracy": "AIME"}
    votes: ClassVar[bool] = True

    samples: int = Field(16, ge=1, description="answers to each question (the k of avg@k and cons@k)")
    temperature: float = Field(0.6, ge=0, description="sampling temperature; 0 is greedy")
    top_p: float = Field(0.95, gt=0, le=1, description="nucleus sampling")
    max_new_tokens: int = Field(32_768, ge=1, description="tokens of an answer at most, with its thinking")

    def items(self, subject: Subject) -> Sequence[Item]:
        rows = self.rows(subject)
        problems = [need(row, "problem", str, place) for place, row in rows]
        return [
            Item(id, Question(f"{problem}\n\n{BOXED}"), _reference(row.get("answer"), place))
            for id, problem, (place, row) in zip(text_ids(problems), problems, rows, strict=True)
        ]

    def grade(self, item: Item, answer: str) -> Grade:
        number = read_integer(answer)
        return Grade({"accuracy": float(number == item.expected)}, number)


def read_integer(text: str) -> str | None:
    """The whole number from 0 to 999 that a reply gives, without leading zeros."""
    marked = extract_answer(text)
    if marked is None and (between := DOLLARS.findall(text)):
        marked = between[-1]
    found = INTEGER.fullmatch((marked or "").replace(r"\$", "").replace("$", "").rstrip(". "))
    return found[1].lstrip("0") or "0" if found else None


def _reference(answer: object, place: str) -> str:
    found = INTEGER.fullmatch(str(answer))
    if found is None:
        raise DataError(f"{answer!r} is not a whole number from 0 to 999", place=place, fix="give AIME's own answers")
    return found[1].lstrip("0") or "0"
