"""Rows of the Eval Gauntlet (MosaicML; also DCLM's and nanochat's CORE): a question in one text, choices, the right one.

    Passage: … | Context: …        what it is about, in some sets
    Question: … | Q: …             what is asked
    Choices: A. … B. …             in sets whose answers are letters; SIQA and CommonsenseQA have one choice fewer than published
    Answer:

Suites of published sets take such rows apart, and put the parts into the prompt that the set is known by.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ingot.envs.rows import Row, need
from ingot.evals.bases.choices import gold_index

FIELD = re.compile(r"(?:^|\n)(Passage|Context|Question|Q): ")
OPTION = re.compile(r"(?:^|\n)\s*[A-Z]\.\)? ")
CHOICES, ANSWER = "\nChoices:", "Answer:"


@dataclass(frozen=True)
class RowParts:
    """A row taken apart."""

    context: str
    question: str
    choices: tuple[str, ...]
    gold: int


def is_gauntlet(row: Row) -> bool:
    """Whether it is such a row."""
    return "query" in row and "choices" in row and "gold" in row


def parts_of(row: Row, place: str) -> RowParts:
    """The parts of a row; the choices are texts, also where the row's own are letters."""
    head, _, tail = need(row, "query", str, place).partition(CHOICES)
    options = [text.strip() for text in OPTION.split(tail.strip().removesuffix(ANSWER).rstrip())[1:]]
    fields = list(FIELD.finditer(head))
    question = head[fields[-1].end() :] if fields else head
    context = head[fields[0].end() : fields[-1].start()] if len(fields) > 1 else ""
    choices = tuple(options or need(row, "choices", list, place))
    return RowParts(context.strip(), question.strip(), choices, gold_index(first(row["gold"]), len(choices), place))


def first(gold: Any) -> Any:
    """The right choice, or the first of several."""
    return gold[0] if isinstance(gold, list) and gold else gold
