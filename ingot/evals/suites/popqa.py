"""PopQA: facts on things that few or many people look up (Mallen et al. 2023), from memory.

As its authors have it: `Q: {question} A:` after 15 worked examples, one of every other relation, in random order; right if one of
the possible answers stands in what is written, as it is, in lower case or capitalised. `draw: first` takes the first rows.
"""

from __future__ import annotations

import json
import math
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import ClassVar

from pydantic import Field

from ingot.envs.rows import Row, need
from ingot.evals.bases.few_shot import HARNESS_SEED
from ingot.evals.bases.short_answers import Measure, Short, ShortAnswerSuite
from ingot.workspace.errors import DataError


def stands_in(written: str, answers: Sequence[str]) -> float:
    """Whether one of the answers is somewhere in it."""
    return float(any(form in written for answer in answers for form in (answer, answer.lower(), answer.capitalize())))


class Popqa(ShortAnswerSuite):
    """PopQA: facts that few or many people look up, from memory."""

    local: ClassVar[tuple[str, ...]] = ("popqa/*.jsonl*",)
    hub: ClassVar[tuple[str, ...]] = ("hf:akariasai/PopQA:test",)
    measures: ClassVar[Mapping[str, Measure]] = {"accuracy": stands_in}
    shots: int = Field(15, ge=0, description="worked examples before each question")
    max_new_tokens: int = Field(15, ge=1, description="tokens of an answer at most")

    def short(self, row: Row, place: str) -> Short:
        """The question of a row."""
        given = row.get("possible_answers")
        try:
            answers = json.loads(given) if isinstance(given, str) else need(row, "possible_answers", list, place)
        except ValueError as error:
            raise DataError(
                f"the column 'possible_answers' is not JSON: {error}", place=place, fix='give ["answer", …]'
            ) from error
        shown = row.get("obj")
        accepted = tuple(map(str, answers))
        first = (shown,) if isinstance(shown, str) and shown in accepted else ()
        text = f"Q: {need(row, 'question', str, place)} A:"
        return Short(text, tuple(dict.fromkeys(first + accepted)), relation=str(row.get("prop") or ""))

    def examples(self, asked: Sequence[Short], pool: Sequence[Short]) -> list[list[Short]]:
        """Of every other relation as many; of the same one, too, where the rows name no others."""
        by_relation: defaultdict[str, list[Short]] = defaultdict(list)
        for example in pool:
            by_relation[example.relation].append(example)
        if self.draw == "first" or len(by_relation) < 2:
            return super().examples(asked, pool)
        generator = random.Random(HARNESS_SEED)
        return [spread(each, by_relation, self.shots, generator) for each in asked]


def spread(
    asked: Short, by_relation: Mapping[str, Sequence[Short]], count: int, generator: random.Random
) -> list[Short]:
    """So many examples of other relations than the question's, in turn, and then in random order."""
    others = [examples for name, examples in by_relation.items() if name != asked.relation]
    each = math.ceil(count / len(others))
    drawn = [generator.sample(examples, min(each, len(examples))) for examples in others]
    turns = [example for turn in zip_longest(*drawn) for example in turn if example is not None]
    if len(turns) < count:
        raise DataError(
            f"{count} worked examples are asked for, and there are {len(turns)} rows of other relations",
            fix="lower `shots`, or give more rows in `shot_files`",
        )
    return generator.sample(turns[:count], count)
